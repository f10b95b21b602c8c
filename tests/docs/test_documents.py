"""The documents say what is so: plays load, commands and options exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.cli.app import COMMANDS, load
from rowmill.plays.loading import load as load_play
from rowmill.settings import Settings

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "changes/README.md")
    for path in ROOT.glob(pattern)
)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_VARIABLE = re.compile(r"\bROWMILL_[A-Z_]+")
_NOT_SETTINGS = (
    "ROWMILL_BENCH_",
    "ROWMILL_HOME",
    "ROWMILL_SECRET_",
    "ROWMILL_TEST_",
    "ROWMILL_AGAIN",
)


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    for path in DOCUMENTS:
        for kind, text in _BLOCK.findall(path.read_text(encoding="utf-8")):
            if kind == language:
                yield path, text


def commands() -> Iterator[tuple[Path, list[str]]]:
    """Yield every `rowmill ...` line of the documents' shell blocks, and those in the text."""
    for path, text in blocks("sh"):
        for line in text.splitlines():
            if line.startswith("rowmill "):
                yield path, shlex.split(line, comments=True)[1:]
    for path in DOCUMENTS:
        for span in re.findall(r"`rowmill ([a-z][^`]*)`", path.read_text(encoding="utf-8")):
            yield path, shlex.split(span)


@pytest.mark.parametrize(
    ("path", "text"), list(blocks("python")), ids=lambda value: str(value)[-20:]
)
def test_a_documented_play_loads(path: Path, text: str, tmp_path: Path) -> None:
    play = tmp_path / "play.py"
    play.write_text(text, encoding="utf-8")
    assert load_play(str(play)).dataset.columns


@pytest.mark.parametrize(
    ("path", "words"), [(path.relative_to(ROOT), words) for path, words in commands()], ids=str
)
def test_a_documented_command_exists_with_its_options(path: Path, words: list[str]) -> None:
    name, *rest = words
    assert name in COMMANDS, f"{path}: rowmill {name}"
    command = load(name, COMMANDS[name])
    while getattr(command, "commands", None) and rest:
        assert rest[0] in command.commands, f"{path}: rowmill {shlex.join(words)}"
        command, rest = command.commands[rest[0]], rest[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    given = {word.split("=")[0] for word in rest if word.startswith("--")}
    assert given <= known | {"--help"}, f"{path}: rowmill {shlex.join(words)}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path: Path) -> None:
    links = _LINK.findall(path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_named_variables_are_settings(path: Path) -> None:
    named = set(_VARIABLE.findall(path.read_text(encoding="utf-8")))
    settings = {f"ROWMILL_{field.upper()}" for field in Settings.model_fields}
    unknown = {name for name in named - settings if not name.startswith(_NOT_SETTINGS)}
    assert unknown == set()


def test_the_promises_that_tests_quote_are_written_down() -> None:
    quoted = {
        code
        for path in (ROOT / "tests").rglob("*.py")
        for code in re.findall(r"behaviour\(\"([A-Z]\d+)\"", path.read_text(encoding="utf-8"))
    }
    promises = (ROOT / "docs" / "behaviour.md").read_text(encoding="utf-8")
    assert quoted - set(re.findall(r"\*\*([A-Z]\d+)\*\*", promises)) == set()
