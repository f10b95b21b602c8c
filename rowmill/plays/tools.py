"""A tool as a play declares it, and its declarative use as a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from typing_extensions import TypeVar

from rowmill.plays.providers import Provider, seconds
from rowmill.plays.sites import Site, first_problem, here
from rowmill.plays.specs import BatchSpec, RetryPolicy, ToolSpec
from rowmill.plays.values import NotJson, to_json

OutputT = TypeVar("OutputT", default=Any)

Method = Literal["POST", "GET", "PUT"]


class OutputMismatch(ValueError):
    """A tool's answer does not fit its declared output. The message names the field (D1)."""


class Tool(Generic[OutputT]):
    """One operation of a provider.

    >>> registry = Provider("registry", base_url="https://registry.test")
    >>> profile = Tool("registry.profile", registry, post="/company", stale_after="30d")
    >>> profile.spec.method, profile.spec.path, profile.spec.stale_after_s
    ('POST', '/company', 2592000.0)
    >>> profile(symbol=col("Symbol"), fields=["name"])
    registry.profile(symbol=col("Symbol"), fields=['name'])

    Args:
        id: name in receipts, reports and errors; another id, other receipts.
        provider: the Provider it belongs to.
        post, get, put: the path, put after the provider's base URL; exactly one of them.
        output: a pydantic model, or any type pydantic knows; unset: the JSON answer as it is.
        cost: money of one purchase, 0 or more.
        timeout_s: of one send, seconds, up to 900.
        stale_after: seconds or `30d`; an older receipt is asked again.
        version: raise it when the same question should be asked anew (R1).
        retry: the provider's, unless set.
        batch: `batch(...)`: how it asks many questions in one request.
        idempotent: whether the provider honours `Idempotency-Key`.
        key_lifetime: how long it does, seconds or `24h`.

    Raises: PlayError naming file, line and field.
    """

    def __init__(
        self,
        id: str,
        provider: Provider,
        *,
        post: str | None = None,
        get: str | None = None,
        put: str | None = None,
        output: type[OutputT] | None = None,
        cost: float = 0,
        timeout_s: float = 60,
        stale_after: str | float | None = None,
        version: int = 1,
        retry: RetryPolicy | None = None,
        batch: BatchSpec | None = None,
        idempotent: bool = True,
        key_lifetime: str | float = "24h",
    ) -> None:
        self.site = here()
        self._name = f'Tool "{id}"'
        if not isinstance(provider, Provider):
            self.site.refuse(
                f"{self._name}: provider: {provider!r} is no Provider; "
                'define one first: registry = Provider("registry", base_url=…).'
            )
        self.provider = provider
        self.output = output
        self._adapter = self._output_adapter()
        method, path = self._operation(post, get, put)
        try:
            self.spec = ToolSpec(
                id=id,
                provider=provider.id,
                method=method,
                path=path,
                version=version,
                timeout_s=timeout_s,
                retry=retry,
                idempotent=idempotent,
                key_lifetime_s=seconds(key_lifetime),
                stale_after_s=None if stale_after is None else seconds(stale_after),
                cost=cost,
                output_schema=self._output_schema(),
                batch=batch,
            )
        except ValidationError as error:
            self.site.refuse(f"{self._name}: {first_problem(error)}")
        except ValueError as error:
            self.site.refuse(f"{self._name}: stale_after or key_lifetime: {error}")

    @property
    def id(self) -> str:
        """The tool's id."""
        return self.spec.id

    def __call__(self, **inputs: Any) -> ToolCall[OutputT]:
        """Return a column that asks this tool: `profile(symbol=col("Symbol"))`.

        Args: fields of the question: `col(...)`, JSON constants, lists and dicts of both. Names
        that are no Python words go in by `**{"company-name": col("name")}`.
        Raises: PlayError where a constant is not JSON.
        """
        return ToolCall(self, inputs, here())

    def read(self, answer: Any) -> OutputT:
        """Return a JSON answer as the declared output, unchanged where none is declared.

        Raises: OutputMismatch naming the field.
        """
        if self._adapter is None:
            return answer  # type: ignore[no-any-return] # OutputT is Any without `output=`
        try:
            return self._adapter.validate_python(answer)
        except ValidationError as error:
            raise OutputMismatch(
                f"{self.id}: the answer does not fit {_type_name(self.output)}: "
                f"{first_problem(error)}"
            ) from None

    def __repr__(self) -> str:
        return f"Tool({self.id!r}, {self.spec.method} {self.spec.path})"

    def _operation(self, post: str | None, get: str | None, put: str | None) -> tuple[Method, str]:
        paths: dict[Method, str | None] = {"POST": post, "GET": get, "PUT": put}
        given: list[tuple[Method, str]] = [
            (method, path) for method, path in paths.items() if path is not None
        ]
        if len(given) != 1:
            self.site.refuse(f'{self._name}: give one of post="/path", get= or put=.')
        return given[0]

    def _output_adapter(self) -> TypeAdapter[OutputT] | None:
        if self.output is None:
            return None
        try:
            return TypeAdapter(self.output)
        except PydanticSchemaGenerationError:
            self.site.refuse(
                f"{self._name}: output: {_type_name(self.output)} is no type of JSON; "
                "use a pydantic model."
            )

    def _output_schema(self) -> dict[str, Any] | None:
        if self._adapter is None:
            return None
        try:
            return self._adapter.json_schema()
        except PydanticInvalidForJsonSchema as error:
            self.site.refuse(
                f"{self._name}: output: {_type_name(self.output)} can't be described as JSON: "
                f"{str(error).splitlines()[0]}"
            )


@dataclass(frozen=True, slots=True)
class Col:
    """The value of a column of the same row, in the input of a declarative tool call."""

    name: str
    site: Site

    def __repr__(self) -> str:
        return f'col("{self.name}")'


def col(name: str) -> Col:
    """Refer to a column of the row: an input column, or one worked out before.

    >>> col("Symbol")
    col("Symbol")

    The name is taken whole: `col("Net.Revenue")` is the column of that name.
    """
    return Col(name, here())


class ToolCall(Generic[OutputT]):
    """A declarative tool call: what `profile(symbol=col("Symbol"))` makes. No code runs per row."""

    def __init__(self, tool: Tool[OutputT], inputs: Mapping[str, Any], site: Site) -> None:
        self.tool = tool
        self.inputs = dict(inputs)
        self.site = site
        self.cols: list[Col] = []
        self.build: Callable[[Mapping[str, Any]], dict[str, Any]] = self._builder(self.inputs)
        """Return the question as a JSON object, from a row. Raises: NoSuchColumn, NotJson."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.inputs.items())
        return f"{self.tool.id}({fields})"

    def _builder(self, inputs: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        parts = {
            name: self._part(value, f"{self.tool.id}({name})") for name, value in inputs.items()
        }
        return lambda row: {name: part(row) for name, part in parts.items()}

    def _part(self, value: Any, path: str) -> Callable[[Mapping[str, Any]], Any]:
        """Return what reads one part of the question from a row; constants are checked now."""
        if isinstance(value, Col):
            self.cols.append(value)
            name = value.name
            return lambda row: to_json(row[name], path)
        if isinstance(value, Mapping) and _holds_col(value):
            return self._builder(value)
        if isinstance(value, list | tuple) and _holds_col(value):
            items = [self._part(item, f"{path}[{place}]") for place, item in enumerate(value)]
            return lambda row: [item(row) for item in items]
        try:
            constant = to_json(value, path)
        except NotJson as error:
            self.site.refuse(str(error))
        return lambda row: constant


def _holds_col(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_col(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_col(item) for item in value)
    return isinstance(value, Col)


def _type_name(output: Any) -> str:
    return getattr(output, "__name__", None) or repr(output)
