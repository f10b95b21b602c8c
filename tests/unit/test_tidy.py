"""The house style, counted: what `CONTRIBUTING.md` says in words."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("rowmill", "streams", "topics", "ops")
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
DEPTH_MAX = 4

_BANNED_NAME = re.compile(r"(^|_)(manager|helper|util|utils|handler)s?($|_)", re.IGNORECASE)
_BANNED_CLASS = re.compile(r"(Manager|Helper|Util|Utils|Handler)s?$")
_BANNED_FUNCTIONS = ("process", "handle")
_NAMED_BY_FAUST = ("_build_handler",)
# Put together here, so that this file does not find itself.
_OF_THIS_MACHINE = tuple(
    "/".join(("", *parts)) for parts in (("work", "main"), ("work", "shared"), ("root", ""))
)
_SHARED = re.compile(r"(?<![\w.])(\.\./|/)shared/")
_TEXT = {".py", ".sh", ".toml", ".md", ".yml", ".yaml", ".cfg", ".lock", ".in"}

_NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> list[Path]:
    """Return the Python files below the folders; a linked folder is seen under its real name."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    )


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sources(*folders):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))


def depth(node: ast.AST) -> int:
    """Return how deep blocks stand in each other below `node`; `elif` adds nothing."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        is_elif = isinstance(child, ast.If) and isinstance(node, ast.If) and child in node.orelse
        own = int(isinstance(child, _NESTING) and not is_elif)
        deepest = max(deepest, own + depth(child))
    return deepest


def public(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield classes and functions, methods too, whose whole path is public."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)) or node.name.startswith("_"):
            continue
        yield f"{inside}{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from public(node, f"{inside}{node.name}.")


def undocumented(tree: ast.Module) -> Iterator[str]:
    for name, node in public(tree):
        # A Protocol's `...`, an override and a setter say what they do where they are declared.
        body_is_dots = isinstance(node.body[0], ast.Expr) and (
            isinstance(node.body[0].value, ast.Constant) and node.body[0].value.value is ...
        )
        overrides = any(
            (isinstance(mark, ast.Name) and mark.id in ("override", "overload"))
            or (isinstance(mark, ast.Attribute) and mark.attr == "setter")
            for mark in node.decorator_list
        )
        if not (ast.get_docstring(node) or body_is_dots or overrides):
            yield name


def test_modules_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources(*PACKAGES, "tests", "bench", "examples")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES_MAX
    }
    assert not long


def test_functions_are_short() -> None:
    """Counted below the signature: a command's options are a list, not a way to go."""
    long = {
        f"{path}:{function.lineno} {function.name}": lines
        for path, tree in trees(*PACKAGES, "tests", "bench")
        for function in functions(tree)
        if (lines := (function.end_lineno or 0) - function.body[0].lineno + 1) > FUNCTION_LINES_MAX
    }
    assert not long


def test_blocks_are_not_nested_deeply() -> None:
    deep = {
        f"{path}:{function.lineno} {function.name}": found
        for path, tree in trees(*PACKAGES, "tests", "bench")
        for function in functions(tree)
        if (found := depth(function)) > DEPTH_MAX
    }
    assert not deep


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path
        for path, tree in trees(*PACKAGES, "examples", "bench")
        if not ast.get_docstring(tree) and tree.body
    ]
    assert not silent


def test_every_public_name_says_what_it_does() -> None:
    silent = [f"{path} {name}" for path, tree in trees(*PACKAGES) for name in undocumented(tree)]
    assert not silent


def test_names_say_what_a_thing_is() -> None:
    vague = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees(*PACKAGES, "bench")
        for node in ast.walk(tree)
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef))
        and node.name not in _NAMED_BY_FAUST
        and (
            _BANNED_CLASS.search(node.name)
            if isinstance(node, ast.ClassDef)
            else _BANNED_NAME.search(node.name) or node.name in _BANNED_FUNCTIONS
        )
    ]
    vague += [
        str(path.relative_to(ROOT))
        for path in sources(*PACKAGES, "bench")
        if _BANNED_NAME.search(path.stem)
    ]
    assert not vague


def texts() -> Iterator[Path]:
    """Yield the text files that a clone has, without what runs and builds leave behind."""
    left_behind = {"node_modules", "dist", "build", "__pycache__"}
    for folder, names, files in os.walk(ROOT):
        kept = [name for name in names if name not in left_behind]
        names[:] = [name for name in kept if not name.startswith(".") or name == ".ci"]
        yield from (Path(folder, file) for file in files if Path(file).suffix in _TEXT)


@pytest.mark.parametrize("pattern", [*map(re.escape, _OF_THIS_MACHINE), _SHARED.pattern])
def test_no_path_outside_the_clone_is_named(pattern: str) -> None:
    wanted = re.compile(pattern)
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if wanted.search(line)
    ]
    assert not found


def test_locks_name_no_registry_and_hash_everything() -> None:
    for path in (ROOT / "requirements").glob("*.lock"):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text, path
        entries = re.split(r"\n(?=\S)", text.strip())
        assert all("--hash=sha256:" in entry for entry in entries if "==" in entry), path


def test_the_count_of_depth_can_fail() -> None:
    nested = ast.parse(
        "def f():\n if a:\n  for b in c:\n   while d:\n    with e:\n     try: g()\n     finally: h()\n"
    )
    flat = ast.parse(
        "def f():\n if a: b()\n elif c: d()\n elif e: g()\n elif h: i()\n elif j: k()\n"
    )
    assert depth(nested.body[0]) == 5
    assert depth(flat.body[0]) == 1
