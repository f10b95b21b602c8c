"""What a run would buy: rows are worked out as far as receipts answer, and nothing is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from rowmill.client.plan import Plan, Planner, ReceiptShelf, receipt_shelf, to_json_text
from rowmill.client.source import Source
from rowmill.client.work import PlainRow, identified
from rowmill.plays.loading import LoadedPlay, load
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogRecord
from rowmill.streams.core.identity import receipt_key
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import Failure, Receipt
from rowmill.topics.codec import encode
from rowmill.topics.contracts import ReceiptEntry

PLAY = """
from rowmill import Dataset, Provider, Tool, col, rate

paid = Provider("paid", base_url="http://p.test", limits=[rate("2/s"), rate("30/min")])
first = Tool("paid.first", paid, post="/first", cost=0.5, stale_after="1d")
second = Tool("paid.second", paid, post="/second", cost=0.25)


async def find(row, ctx):
    if row["first"] is None:
        return ctx.skip("nothing")
    return await ctx.tools.execute(second, {"of": row["first"]["n"]})


def broken(row):
    return 1 / int(row["n"])


rows = (
    Dataset("rows", key="id", when=lambda row: row["id"] != "out")
    .with_column("broken", broken)
    .with_column("first", first(q=col("q")), when=lambda row: row["q"] != "no", on_error="continue")
    .with_column("second", find)
    .with_column("label", lambda row: row["second"]["n"])
)
"""
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> LoadedPlay:
    path = tmp_path_factory.mktemp("plan") / "planned.py"
    path.write_text(PLAY)
    return load(str(path))


@pytest.fixture
def shelf() -> Iterator[ReceiptShelf]:
    with receipt_shelf() as found:
        yield found


def keep(shelf: ReceiptShelf, tool: str, question: dict[str, Any], **fields: Any) -> str:
    """Put a receipt on the shelf; return its key."""
    key = receipt_key("default", "default", tool, 1, "p.test", question)
    epoch = fields.pop("epoch", 1)
    plain: dict[str, Any] = {"state": "completed", "settled_wall_ms": NOW_MS, "purchase": "x"}
    value = encode(ReceiptEntry(epoch=epoch, receipt=Receipt(key, tool, "paid", **plain | fields)))
    headers = (("rowmill_epoch", str(epoch).encode()),)
    shelf.apply(LogRecord(0, 0, key, value, 0, headers))
    return key


async def planned(
    play: LoadedPlay, shelf: ReceiptShelf, *rows: tuple[str, str], **wish: Any
) -> Plan:
    values = [{"id": id_, "q": question, "n": "1"} for id_, question in rows]
    plain = [PlainRow(one | wish.pop("values", {})) for one in values]
    source = Source.read(lambda: identified(play.dataset, plain))
    return await Planner(play, shelf, Settings(), NOW_MS, **wish).work_out(source)


def counts(plan: Plan) -> dict[str, tuple[int, int, int]]:
    return {tool: (one.known, one.answered, one.following) for tool, one in plan.tools.items()}


async def test_a_question_of_many_rows_is_one_call_and_what_depends_on_it_may_follow(
    play: LoadedPlay, shelf: ReceiptShelf
) -> None:
    plan = await planned(play, shelf, ("1", "a"), ("2", "a"), ("3", "b"))
    assert counts(plan) == {"paid.first": (2, 0, 0), "paid.second": (0, 0, 3)}
    assert (plan.total, plan.duplicates, plan.failing) == (3, 0, 0)
    assert sum(one.cost for one in plan.tools.values()) == 1.0
    assert sum(one.cost_max for one in plan.tools.values()) == 1.75
    assert plan.resolvers == []


async def test_what_receipts_answer_leads_on_to_the_next_call(
    play: LoadedPlay, shelf: ReceiptShelf
) -> None:
    keep(shelf, "paid.first", {"q": "a"}, output={"n": 7})
    plan = await planned(play, shelf, ("1", "a"))
    assert counts(plan) == {"paid.first": (0, 1, 0), "paid.second": (1, 0, 0)}
    keep(shelf, "paid.second", {"of": 7}, output={"n": 8})
    plan = await planned(play, shelf, ("1", "a"))
    assert counts(plan) == {"paid.first": (0, 1, 0), "paid.second": (0, 1, 0)}
    assert plan.least_s(following=True) is None


async def test_old_failed_and_forced_answers_are_asked_again_as_a_run_would(
    play: LoadedPlay, shelf: ReceiptShelf
) -> None:
    keep(shelf, "paid.first", {"q": "old"}, output={"n": 1}, settled_wall_ms=NOW_MS - 2 * DAY_MS)
    for question, kind in (("later", FailureKind.TRANSIENT), ("never", FailureKind.PERMANENT)):
        failure = Failure(kind, "why")
        keep(shelf, "paid.first", {"q": question}, state="failed", failure=failure)
    rows = [("1", "old"), ("2", "later"), ("3", "never")]
    plan = await planned(play, shelf, *rows)
    assert counts(plan)["paid.first"] == (2, 1, 0)
    plan = await planned(play, shelf, *rows, force="failed")
    assert counts(plan)["paid.first"] == (3, 0, 0)
    keep(shelf, "paid.first", {"q": "new"}, output={"n": 1})
    plan = await planned(play, shelf, ("4", "new"), force="all")
    assert counts(plan)["paid.first"] == (1, 0, 0)


async def test_the_highest_owners_record_counts_and_a_deleted_one_does_not(
    play: LoadedPlay, shelf: ReceiptShelf
) -> None:
    key = keep(shelf, "paid.first", {"q": "a"}, output={"n": 7}, epoch=2)
    keep(shelf, "paid.first", {"q": "a"}, state="queued", settled_wall_ms=None, epoch=1)
    assert counts(await planned(play, shelf, ("1", "a")))["paid.first"] == (0, 1, 0)
    shelf.apply(LogRecord(0, 1, key, None, 0, (("rowmill_epoch", b"2"),)))
    shelf.apply(LogRecord(0, 2, key + "x", b"no receipt", 0, ()))
    assert counts(await planned(play, shelf, ("1", "a")))["paid.first"] == (1, 0, 0)


async def test_rows_that_ask_nothing_are_told_apart(play: LoadedPlay, shelf: ReceiptShelf) -> None:
    plan = await planned(play, shelf, ("1", "a"), ("1", "a"), ("", "a"), ("out", "a"), ("2", "no"))
    assert (plan.total, plan.duplicates, plan.refused, plan.skipped) == (5, 1, 1, 1)
    assert counts(plan) == {"paid.first": (1, 0, 0), "paid.second": (0, 0, 1)}


async def test_a_row_that_its_own_code_fails_asks_nothing(
    play: LoadedPlay, shelf: ReceiptShelf
) -> None:
    plan = await planned(play, shelf, ("1", "a"), values={"n": "0"})
    assert plan.failing == 1
    assert counts(plan)["paid.first"] == (0, 0, 0)


async def test_time_is_what_the_slowest_limit_takes(play: LoadedPlay, shelf: ReceiptShelf) -> None:
    rows = [(str(number), f"q{number}") for number in range(61)]
    plan = await planned(play, shelf, *rows)
    assert plan.least_s(following=False) == 120  # 30, 30 and the last one
    assert plan.least_s(following=True) == 240
    told = msgspec.json.decode(to_json_text(plan))
    assert (told["rows"], told["at_least_s"], told["at_least_s_max"]) == (61, 120, 240)
    assert told["tools"][0] == {
        "tool": "paid.first", "provider": "paid", "known": 61, "answered": 0, "following_max": 0,
        "cost": 30.5, "cost_max": 30.5,
    }  # fmt: skip
