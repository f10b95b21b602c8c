"""Loading a play: run its source with its parameters, check all that can be known, say the line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Never, TypeVar

from rowmill.errors import PlayError
from rowmill.plays import checks
from rowmill.plays.compiled import CompiledDataset, compile_dataset
from rowmill.plays.datasets import Dataset
from rowmill.plays.modules import Executed, Source, execute, find
from rowmill.plays.params import bound_to
from rowmill.plays.providers import Provider
from rowmill.plays.sites import shown
from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.plays.tools import Tool, ToolCall

Found = TypeVar("Found", Tool, Provider)


@dataclass(frozen=True, slots=True)
class Reference:
    """How a worker finds the same play again: never its code.

    `path`: absolute file, `module`: dotted name, where it was named so. `digest`: of the play's
    sources, 32 hexadecimal characters. `params`: as given, text; a worker loads with the same.
    """

    name: str
    path: str | None
    module: str | None
    digest: str
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoadedPlay:
    """A play that passed all checks. `params`: all parameters with their values, as JSON.

    `tools`, `providers`: all that its code can reach; `needed_providers`: those of tools that its
    columns ask or that it has names for.
    """

    reference: Reference
    dataset: CompiledDataset
    providers: list[ProviderSpec]
    tools: list[ToolSpec]
    params: Mapping[str, Any]
    declared: Dataset
    needed_providers: tuple[Provider, ...]

    def check_input(self, columns: Sequence[str], source: str = "the input") -> None:
        """Check that an input fits: its key columns, and what `col()` and `replace=` name.

        Args: `columns`: the input's fields; `source`: the input as the user named it.
        Raises: KeyColumnMissing, PlayError.
        """
        checks.check_input_columns(self.declared, columns, source)
        checks.check_replaced(self.declared, columns)

    def check_secrets(self, is_set: Callable[[str], bool]) -> None:
        """Check that every secret is set that the play needs; at the start of a run.

        Raises: PlayError naming the secret and how to set it.
        """
        checks.check_secrets(self.needed_providers, is_set)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the secrets that the play needs, each once."""
        auths = (provider.spec.auth for provider in self.needed_providers)
        return tuple(dict.fromkeys(auth.secret for auth in auths if auth is not None))


def load(
    path_or_module: str,
    params: Mapping[str, str] | None = None,
    input_columns: Sequence[str] | None = None,
    *,
    source: str = "the input",
) -> LoadedPlay:
    """Load a play and check everything that can be known before it runs.

    Args: `path_or_module`: a `.py` file or a dotted name. `params`: `--param` values, text.
    `input_columns`: the input's fields, where they are known; `source`: the input as the user named
    it.
    Raises: PlayError with file, line and what to do; KeyColumnMissing.

    Loading again, in this process or another, with the same sources and params gives the same.
    """
    found = find(path_or_module)
    with bound_to(params or {}) as binding:
        executed = execute(found)
        binding.check_all_known()
    dataset = _the_dataset(executed.module, found)
    named = _named_tools(executed.module, dataset)
    tools = _distinct([*named, *_reachable_tools(executed)])
    providers = _distinct(tool.provider for tool in tools)
    checks.check_tools(tools, providers)
    for provider in providers:
        checks.check_limits(provider)
    play = LoadedPlay(
        reference=Reference(
            name=_name(found),
            path=str(found.path),
            module=found.module,
            digest=executed.digest,
            params=dict(params or {}),
        ),
        dataset=compile_dataset(dataset),
        providers=list({provider.id: provider.spec for provider in providers}.values()),
        tools=list({tool.id: tool.spec for tool in tools}.values()),
        params=binding.values(),
        declared=dataset,
        needed_providers=tuple(_distinct(tool.provider for tool in named)),
    )
    if input_columns is not None:
        play.check_input(input_columns, source)
    return play


def _the_dataset(module: ModuleType, found: Source) -> Dataset:
    """Return the module's one dataset; those it grew from by `with_column` do not count."""
    named = {id(value): value for value in vars(module).values() if isinstance(value, Dataset)}
    for dataset in list(named.values()):
        parent = dataset.parent
        while parent is not None:
            named.pop(id(parent), None)
            parent = parent.parent
    datasets = list(named.values())
    if not datasets:
        _refuse(
            found,
            'no Dataset; a play gives one a name: companies = Dataset("companies", key=…)'
            ".with_column(…).",
        )
    if len(datasets) > 1:
        places = ", ".join(f'"{dataset.name}" ({dataset.site})' for dataset in datasets)
        _refuse(found, f"{len(datasets)} datasets: {places}; a play has one, split the file.")
    if not datasets[0].columns:
        datasets[0].site.refuse(
            f'Dataset "{datasets[0].name}" adds nothing: add a column by .with_column("name", …).'
        )
    return datasets[0]


def _named_tools(module: ModuleType, dataset: Dataset) -> list[Tool]:
    """Return the tools that the play's columns ask, and those it has names for."""
    sources = (column.source for column in dataset.columns)
    asked = [source.tool for source in sources if isinstance(source, ToolCall)]
    return _distinct([*_tools_in(module), *asked])


def _reachable_tools(executed: Executed) -> Iterator[Tool]:
    """Yield the tools of modules that the play imported: its resolvers may ask `crm.profile`."""
    imported = (value for value in vars(executed.module).values() if isinstance(value, ModuleType))
    for module in (*executed.beside, *imported):
        yield from _tools_in(module)


def _tools_in(module: ModuleType) -> list[Tool]:
    return [value for value in list(vars(module).values()) if isinstance(value, Tool)]


def _distinct(found: Iterable[Found]) -> list[Found]:
    """Return the objects in order, each once."""
    return list({id(one): one for one in found}.values())


def _name(found: Source) -> str:
    """A play is called after its file; `play.py` and `main.py` after their folder."""
    if found.module is not None:
        return found.module
    stem = found.path.stem
    return found.path.parent.name if stem in ("play", "main", "__init__") else stem


def _refuse(found: Source, problem: str) -> Never:
    raise PlayError(f"{shown(found.path)}: {problem}")
