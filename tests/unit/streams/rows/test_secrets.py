"""No secret leaves the rows role: not in a question, a cell, an error, an input value, a reason."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rowmill.topics.contracts import RowInput
from tests.kit.fake_engine import CANARY, delivered, settle
from tests.unit.streams.rows.role import Role

Disguise = Callable[[str], str]

DISGUISES: dict[str, Disguise] = {
    "plain": lambda value: f"key={value}!",
    "base64": lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
    "url": lambda value: "https://x.test/?key=" + quote(value, safe=""),
}

PLAY = """
    import base64
    from rowmill import Dataset, Provider, Tool, col

    provider = Provider("p", base_url="http://provider.test")
    company = Tool("p.company", provider, post="/company")

    def leak(row):
        if row["id"] == "raises":
            raise RuntimeError(row["company"]["name"])
        return row["company"]["name"].removeprefix("x-")

    rows = (
        Dataset("d", key="id")
        .with_column("company", company(symbol=col("id")))
        .with_column("clean", lambda row: "kept")
        .with_column("leak", leak)
        .with_column("after", lambda row: "also kept")
    )
"""


@pytest.fixture(params=list(DISGUISES))
def shown(request: pytest.FixtureRequest) -> str:
    return DISGUISES[request.param](CANARY)


def everything(role: Role) -> bytes:
    """Every byte that the role wrote: topics and table."""
    topics = [value for values in role.app.raw.values() for value in values]
    return b"\n".join([*topics, *(value for _, value in role.table.writes)])


def leaves_no_trace(role: Role, shown: str) -> None:
    written = everything(role)
    assert written
    assert shown.encode() not in written
    assert role.app.secrets.found_in(written) is None


@pytest.mark.behaviour("R10")
async def test_a_question_that_carries_a_secret_is_not_asked(tmp_path: Path, shown: str) -> None:
    role = Role(tmp_path)
    record = RowInput(run="run", dataset="d", row="r1", index=0, values={"id": shown})
    role.intake.offer(delivered(record))  # type: ignore[arg-type]
    await settle()
    assert role.requests == []
    (row,) = role.completed
    assert row.status == "failed"
    assert row.values == {}
    leaves_no_trace(role, shown)


@pytest.mark.behaviour("R10")
async def test_a_cell_that_carries_a_secret_fails_its_row_and_the_others_are_kept(
    tmp_path: Path, shown: str
) -> None:
    role = Role(tmp_path, PLAY)
    role.feed("MMM", 0)
    await settle()
    role.answer({"name": shown})
    await settle()
    (row,) = role.completed
    assert (row.status, row.failed_column) == ("failed", "company")
    assert row.error == (
        f'dataset("d").row("{row.row}"): column "company" carries the secret CANARY, which is not kept'
    )
    assert row.cells["clean"]["value"] == "kept"
    assert row.cells["after"]["value"] == "also kept"
    assert row.cells["leak"]["error"] == "carries the secret CANARY, which is not kept"
    assert row.cells["leak"]["value"] is None
    assert row.values == {"id": "MMM"}
    leaves_no_trace(role, shown)


@pytest.mark.behaviour("R10")
async def test_an_error_that_carries_a_secret_is_told_without_it(
    tmp_path: Path, shown: str
) -> None:
    role = Role(tmp_path, PLAY)
    role.feed("raises", 0)
    await settle()
    role.answer({"name": shown})
    await settle()
    (row,) = role.completed
    assert row.status == "failed"
    leaves_no_trace(role, shown)


@pytest.mark.behaviour("R10")
async def test_a_foreign_row_with_a_secret_is_stamped_without_its_values(
    tmp_path: Path, shown: str
) -> None:
    role = Role(tmp_path)
    record = RowInput(run="run", dataset="d", values={"id": "MMM", "note": shown})
    role.intake.offer(delivered(record))  # type: ignore[arg-type]
    await settle()
    (stamped,) = role.app.produced["rows.input"]
    assert stamped.values == {}
    assert stamped.refused == "the row carries the secret CANARY, which is not kept"
    leaves_no_trace(role, shown)


@pytest.mark.behaviour("R9")
async def test_a_question_above_the_limit_is_not_asked_and_its_path_is_told(tmp_path: Path) -> None:
    role = Role(tmp_path, row_bytes_max=1_000)
    record = RowInput(run="run", dataset="d", row="r1", index=0, values={"id": "x" * 2_000})
    role.intake.offer(delivered(record))  # type: ignore[arg-type]
    await settle()
    assert role.requests == []
    (row,) = role.completed
    assert 'dataset("d").row("r1")' in row.error


@pytest.mark.behaviour("R10")
async def test_a_play_that_can_not_be_loaded_gives_no_secret_away(
    tmp_path: Path, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = Role(tmp_path)

    def why_not(run: Any) -> str:
        return f"RuntimeError: {shown}"

    shelf = role.intake._shelf
    monkeypatch.setattr(shelf, "serves", lambda run: False)
    monkeypatch.setattr(shelf, "why_not", why_not)
    role.tell_run(life=2, state="open", offset=2)
    (note,) = role.app.produced["runs.events"]
    assert note.reason.endswith("carries the secret CANARY: left out")
