"""Running a play's source as a fresh module, and knowing everything that it is made of.

A play and the modules beside it are executed anew at every load, so that the same play can be
loaded with other parameters, or another version of it, in one process. They never stay in
`sys.modules` under their own names: two plays may each have a `common.py`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import itertools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from rowmill.errors import PlayError
from rowmill.plays.sites import Site, brief, closest, first_problem, shown
from rowmill.streams.core.identity import digest

_lock = threading.RLock()  # sys.path and sys.modules are one per process
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a play's code is. `module` and `package`: set where it was named as a module."""

    path: Path
    module: str | None = None
    package: str = ""

    def is_local(self, name: str, origin: str | None) -> bool:
        """Return whether an imported module belongs to the play: its own folder, or its package.

        `origin`: the module's file, or the folder of one that has no `__init__.py`.
        """
        if origin is None:
            return False
        if self.module is not None:
            return bool(self.package) and name.startswith(self.package + ".")
        top = name.partition(".")[0]
        if top == "rowmill":  # beside a play that stands in a clone of Rowmill, and not its own
            return False
        place, folder = Path(origin).resolve(), self.path.parent
        return place == folder / f"{top}.py" or folder / top in (place, *place.parents)


@dataclass(frozen=True, slots=True)
class Executed:
    """A play's module after it ran, the modules beside it, and the digest of all their sources."""

    module: ModuleType
    beside: tuple[ModuleType, ...]
    digest: str


def find(path_or_module: str) -> Source:
    """Return where a play is: a path of a `.py` file, or a module's dotted name.

    Raises: PlayError where there is none.
    """
    path = Path(path_or_module)
    try:
        if path.suffix == ".py" or "/" in path_or_module or path.exists():
            return Source(_existing(path))
    except (OSError, ValueError) as error:  # a name too long, a NUL
        shown_ = brief(path_or_module)
        raise PlayError(f"{shown_}: no path of a play ({error}). Nothing was called.") from None
    try:
        spec = importlib.util.find_spec(path_or_module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise PlayError(f"{path_or_module}: no such file, and no such module. Nothing was called.")
    package = path_or_module if spec.submodule_search_locations else spec.parent or ""
    return Source(Path(spec.origin), path_or_module, package)


def execute(source: Source) -> Executed:
    """Run a play's source and the modules beside it, all anew.

    The digest covers the bytes of the play's file and, with their names, of all modules that it
    imported from its own folder (its own package, where it was named as a module). So it is the
    same in every process and in every folder; files that the play only reads are not part of it.

    Raises: PlayError with file and line of the play for whatever its code raises.
    """
    try:
        text = source.path.read_bytes()
        code = compile(text, str(source.path), "exec", dont_inherit=True)
    except OSError as error:
        raise PlayError(f"{shown(source.path)}: {error.strerror or error}.") from None
    except SyntaxError as error:
        raise PlayError(_syntax_problem(source.path, error)) from None
    except ValueError as error:  # NUL bytes
        raise PlayError(f"{shown(source.path)}: no Python source: {error}.") from None
    name = f"rowmill_play_{next(_numbers)}_{source.path.stem}"
    module = ModuleType(name)
    module.__file__ = str(source.path)
    module.__package__ = source.package
    with _lock, _own_modules(source) as local:
        sys.modules[name] = module  # pydantic and dataclasses look a class's module up there
        try:
            exec(code, module.__dict__)  # noqa: S102 - a play is trusted code, and this runs it
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, KeyboardInterrupt):
                raise
            raise _problem(source, error) from error
        beside = tuple(sys.modules[own] for own in local.names())
        parts = {own: _sha256(file.read_bytes()) for own, file in local.files().items()}
    return Executed(module, beside, digest({"": _sha256(text), **parts}))


@contextmanager
def _own_modules(source: Source) -> Iterator[_LocalFiles]:
    """Let the block import the play's own modules anew; afterwards everything is as before."""
    local = _LocalFiles(source)
    before = {name: sys.modules.pop(name) for name in local.names()}
    wrote_bytecode, path = sys.dont_write_bytecode, list(sys.path)
    # A .pyc is trusted by time and size: an edit within the same second would run the old code
    # under the digest of the new one.
    sys.dont_write_bytecode = True
    if source.module is None:
        sys.path.insert(0, str(source.path.parent))
    importlib.invalidate_caches()
    try:
        yield local
    finally:
        for name in local.names():
            del sys.modules[name]
        sys.modules.update(before)
        sys.dont_write_bytecode = wrote_bytecode
        sys.path[:] = path


@dataclass(frozen=True, slots=True)
class _LocalFiles:
    source: Source

    def names(self) -> list[str]:
        """Names in `sys.modules` of modules that belong to the play."""
        loaded = list(sys.modules.items())
        if self.source.module is None:
            # Asking the file system about every module of the process takes half a second.
            beside = {entry.removesuffix(".py") for entry in os.listdir(self.source.path.parent)}
            loaded = [(name, found) for name, found in loaded if name.partition(".")[0] in beside]
        return [name for name, module in loaded if self.source.is_local(name, _origin(module))]

    def files(self) -> dict[str, Path]:
        """Their names and source files; the play's own file is none of them."""
        named = {name: getattr(sys.modules[name], "__file__", None) for name in self.names()}
        found = {name: Path(file) for name, file in named.items() if file is not None}
        return {name: file for name, file in found.items() if file.resolve() != self.source.path}


def _origin(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return file if file is not None else next(iter(getattr(module, "__path__", ())), None)


def _existing(path: Path) -> Path:
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        plays = sorted(str(found) for found in path.glob("*.py"))
        hint = f" Did you mean {plays[0]}?" if plays else ""
        raise PlayError(f"{path}: a folder, not a play.{hint} Nothing was called.")
    folder = path.parent if path.parent.is_dir() else None
    near = closest(path.name, [found.name for found in folder.glob("*.py")]) if folder else ""
    raise PlayError(f"{path}: no such file.{near} Nothing was called.")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _syntax_problem(path: Path, error: SyntaxError) -> str:
    place = f"{shown(error.filename or path)}:{error.lineno or 1}"
    line = f"\n    {error.text.strip()}" if error.text else ""
    return f"{place}: {error.msg}{line}"


def _problem(source: Source, error: BaseException) -> PlayError:
    """Return what the play's code raised as a PlayError that shows the play's line, not ours."""
    if isinstance(error, PlayError):
        return error
    if isinstance(error, SyntaxError):
        return PlayError(_syntax_problem(source.path, error))
    site = _raised_at(source, error)
    if isinstance(error, ValidationError):
        return PlayError(f"{site}: {error.title}: {first_problem(error)}{_line(site)}")
    return PlayError(f"{site}: {type(error).__name__}: {error}{_line(site)}")


def _raised_at(source: Source, error: BaseException) -> Site:
    """Return the innermost line of the play's own code that the exception passed."""
    site = Site(str(source.path), 1)
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        name = str(frame.tb_frame.f_globals.get("__name__", ""))
        if file == str(source.path) or source.is_local(name, file):
            site = Site(file, frame.tb_lineno)
        frame = frame.tb_next
    return site


def _line(site: Site) -> str:
    import linecache  # only for an error

    linecache.checkcache(site.file)
    text = linecache.getline(site.file, site.line).strip()
    return f"\n    {text}" if text else ""
