"""Parameters of a play: typed, documented, given as `--param KEY=VALUE`, checked before it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rowmill.errors import PlayError
from rowmill.plays.sites import Site, brief, closest, first_problem, here

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # pydantic gives its metaclass no public name

_SURROGATE = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes on a command line that are not UTF-8; no record could hold it."""


@dataclass(slots=True)
class Binding:
    """The values a play is being loaded with, and the Params classes it has declared so far."""

    given: Mapping[str, str]
    declared: list[type[Params]] = field(default_factory=list)

    def check_all_known(self) -> None:
        """Raise PlayError where a value was given that no Params class declares."""
        known = [name for params in self.declared for name in params.model_fields]
        for name in self.given:
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise PlayError(
                    f"--param {name}: the play has no such parameter; {has}.{closest(name, known)}"
                )

    def values(self) -> dict[str, Any]:
        """Return every parameter with the value it has, as JSON."""
        bound = [params.__dict__["__rowmill_bound__"] for params in self.declared]
        return {name: value for one in bound for name, value in one.model_dump(mode="json").items()}


_loading: ContextVar[Binding | None] = ContextVar("rowmill_params", default=None)


@contextmanager
def bound_to(given: Mapping[str, str]) -> Iterator[Binding]:
    """Give every Params class that is declared inside the block its values from `given`."""
    binding = Binding(given)
    token = _loading.set(binding)
    try:
        yield binding
    finally:
        _loading.reset(token)


class _ParamsType(ModelMetaclass):
    """Lets `Options.base_url` be the value that the play was loaded with."""

    def __getattr__(cls, name: str) -> Any:
        bound = cls.__dict__.get("__rowmill_bound__")
        if bound is None or name not in type(bound).model_fields:
            return super().__getattr__(name)  # type: ignore[misc] # hidden from type checkers
        if name not in bound.__dict__:
            cls.__dict__["__rowmill_site__"].refuse(
                f"parameter {name} has no default: give --param {name}=VALUE."
            )
        return bound.__dict__[name]


class Params(BaseModel, metaclass=_ParamsType):
    """Base class of a play's parameters. Each field is one `--param NAME=VALUE`, checked by type.

    The class itself holds the values: those given on the command line, else the defaults. Use
    scalars (str, int, float, bool, date, Literal, an enum) and `Field(description=…)`.

    >>> class Options(Params):
    ...     base_url: str = "http://127.0.0.1:8090"
    ...     deep: bool = False
    >>> Options.base_url, Options.deep
    ('http://127.0.0.1:8090', False)

    Raises: PlayError where a value does not fit its type, or one without a default is missing.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        site = here()
        type.__setattr__(cls, "__rowmill_site__", site)
        binding = _loading.get()
        if binding is None:
            type.__setattr__(cls, "__rowmill_bound__", _defaults(cls))
            return
        type.__setattr__(cls, "__rowmill_bound__", _bound(cls, binding, site))
        binding.declared.append(cls)


def _defaults(params: type[Params]) -> Params:
    """Return the defaults, for a play that is only imported; fields without one stay unset."""
    try:
        return params()
    except ValidationError:
        return params.model_construct()


def _bound(params: type[Params], binding: Binding, site: Site) -> Params:
    own = {name: binding.given[name] for name in params.model_fields if name in binding.given}
    for earlier in binding.declared:
        for name in params.model_fields.keys() & earlier.model_fields.keys():
            if not issubclass(params, earlier):
                site.refuse(f"parameter {name} is declared twice; one play, one meaning.")
    for name, value in own.items():
        if not value.isascii() and _SURROGATE.search(value):
            raise PlayError(f"--param {name}: {brief(value)!a} is not UTF-8 text.")
    try:
        return params.model_validate_strings(own)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        if name in own:
            raise PlayError(f"--param {first_problem(error)}; declared at {site}.") from None
        if error.errors()[0]["type"] == "missing":
            site.refuse(f"parameter {name} has no default: give --param {name}=VALUE.")
        site.refuse(f"parameter {first_problem(error)}")
