"""Cases that users of comparable tools reported, from input to sheet and file (O12, O19-O21, O24, O25)."""

from __future__ import annotations

import base64
import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.topics.catalogue import (
    CHANGELOGS,
    DEAD_LETTER,
    PROVIDER_RESULTS,
    ROWS_COMPLETED,
    ROWS_INPUT,
    TOOL_REQUESTS,
)
from tests.faults.asking import QUICK, completed, dispatch, numbered, write_play, write_rows
from tests.faults.topic import committed, end_of, produce, read
from tests.kit.ledger import Call, Ledger, response
from tests.kit.mill import Mill, RunningRun
from tests.kit.until import until_sync

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

INPUTS = Path(__file__).parents[1] / "inputs"
ANSWERS = Path(__file__).parents[1] / "unit" / "streams" / "adapters" / "cases"

PLAY = """
import json
from rowmill import Dataset, Params, Provider, Tool


class Options(Params):
    base_url: str = "http://127.0.0.1:1"


ledger = Provider("ledger", base_url=Options.base_url)
p1 = Tool("cases.p1", ledger, post="/ask")
p2 = Tool("cases.p2", ledger, post="/ask")
once = Tool("cases.once", ledger, post="/ask", idempotent=False)


async def resolve(row, ctx):
    question = json.loads(row["question"])
    tool, wait_s = globals()[question.pop("tool", "p1")], question.pop("wait_s", None)
    return await ctx.tools.execute(tool, question, wait_s=wait_s)


asked = Dataset("cases", key="id").with_column("answer", resolve)
"""


@pytest.fixture(scope="module")
def shared(
    shared_ledger: Ledger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Mill, Ledger]]:
    """One mill for all cases that break nothing. Each case asks questions of its own."""
    home = tmp_path_factory.mktemp("cases")
    play = write_play(home / "plays", "play")
    play.write_text(PLAY)
    with Mill(home, play=play, base_url=shared_ledger.url, **QUICK) as mill:
        mill.up()
        yield mill, shared_ledger


def ask(mill: Mill, name: str, questions: Iterable[Any], *flags: str) -> RunningRun:
    """Run questions, one a row: ids are their places."""
    path = mill.home / f"{name}.in.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "question"])
        writer.writerows([f"{name}{place}", json.dumps(one)] for place, one in enumerate(questions))
    return mill.start_run(path, name, *flags)


def out(run: RunningRun) -> list[str]:
    """Return the answers in the file, in the order of the questions."""
    return [row["answer"] for row in run.rows()]


def cells(mill: Mill, run: str) -> dict[int, tuple[str, dict[str, Any], str | None]]:
    """Return status, the answer's cell and value of each row in the sheet, by index."""
    found = mill.sheet(
        "select _rowmill_index, _rowmill_status, _rowmill_cells, answer from cases "
        f"where _rowmill_run = '{run}'"
    )
    return {
        index: (status, json.loads(each)["answer"], value) for index, status, each, value in found
    }


def test_o12_questions_are_the_same_where_their_json_is_and_a_null_is_an_answer(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    pairs = [json.loads(line) for line in (INPUTS / "O12_calls.jsonl").open()]
    questions = [one[side] | {"pair": n} for n, one in enumerate(pairs) for side in "ab"]
    ledger.answer = lambda call: (200, {"arrival": call.number})
    before = len(ledger.calls)
    run = ask(mill, "o12", questions)
    assert run.done(60)[0] == 0
    told = out(run)
    same = [told[2 * n] == told[2 * n + 1] for n in range(len(pairs))]
    assert same == [one["same"] for one in pairs]
    assert len(ledger.calls) - before == 2 * len(pairs) - sum(one["same"] for one in pairs)


def test_o12_a_completed_null_is_a_hit_and_an_error_is_no_null(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    questions = [{"null": n} for n in range(5)] + [{"error": 1}]
    ledger.answer = lambda call: (500, {}) if "error" in call.question else (200, None)
    assert ask(mill, "o12null", questions).done(60)[1]["failed"] == 1
    before = len(ledger.calls)
    assert cells(mill, "o12null")[5][0] == "failed"
    ledger.answer = lambda call: (200, {"found": True})
    again = ask(mill, "o12again", questions)
    assert again.done(60)[0] == 0
    assert len(ledger.calls) == before + 1, "the error alone is asked again"
    assert out(again)[5] == '{"found":true}'
    assert {one[1]["status"] for one in cells(mill, "o12again").values()} == {"completed"}


@pytest.mark.behaviour("Q7")
def test_o19_a_purchase_whose_answers_are_lost_keeps_its_key_also_over_a_kill(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    attempts = json.loads((INPUTS / "O19_reset.json").read_text())["attempts"]
    cut_body = response(200, attempts[1]["body"].encode(), length=attempts[1]["content_length"])
    # reset after booking; [killed while it waits]; cut body; ok
    script: list[Any] = [
        None,
        (200, "never told"),
        cut_body,
        (200, attempts[2]["body"] | {"q": "a"}),
    ]
    ledger.answer = lambda call: script[call.number] if call.number < 4 else (200, {"q": "a"})
    ledger.latency_of = lambda call: 60.0 if call.number == 1 else 0.0
    worker = dispatch(mill, 0)
    worker.ready()
    input_ = write_rows(tmp_path / "in.csv", ["a"])
    run = mill.start_run(input_, "lost")
    until_sync(lambda: len(ledger.calls) == 2, within_s=60)
    worker.kill_9()
    dispatch(mill, 0)
    report = completed(run, 1)
    assert [call.ended for call in ledger.calls] == ["answered", "cut", "answered", "answered"]
    assert len(ledger.by_key()) == 1, "the provider's book has one credit"
    assert report["calls"] == 4
    completed(mill.start_run(input_, "forced", "--force"), 1)
    assert len(ledger.by_key()) == 2, "another purchase, another key"


@pytest.mark.behaviour("Q7")
@pytest.mark.parametrize("lost", ["reset", "cut body"])
def test_o19_without_idempotency_nothing_is_sent_blindly_a_second_time(
    shared: tuple[Mill, Ledger], lost: str
) -> None:
    mill, ledger = shared
    ledger.answer = lambda call: None if lost == "reset" else response(200, b'{"a', length=64)
    before = len(ledger.calls)
    run = ask(mill, f"o19{lost[:3]}", [{"tool": "once", "lost": lost}])
    assert run.done(60)[0] == 1
    status, cell, value = cells(mill, f"o19{lost[:3]}")[0]
    assert (status, value) == ("failed", None)
    assert "outcome unknown" in cell["error"]
    again = ask(mill, f"o19{lost[:3]}again", [{"tool": "once", "lost": lost}])
    assert again.done(60)[0] == 1
    assert len(ledger.calls) == before + 1, "a plain rerun reports it too"


@pytest.mark.behaviour("R5")
def test_a_follower_waits_no_longer_than_it_said_and_finds_the_answer_later(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    ledger.answer = lambda call: (200, call.question)
    before = len(ledger.calls)
    ledger.hold()
    buyer = ask(mill, "r5buyer", [{"q": "slow"}])
    ledger.until_open(1)
    patient = ask(mill, "r5patient", [{"q": "slow"}])
    hasty = ask(mill, "r5hasty", [{"q": "slow", "wait_s": 1}])
    code, report = hasty.done(60)
    assert (code, report["failed"], report["calls"]) == (1, 1, 0)
    assert "still running elsewhere" in cells(mill, "r5hasty")[0][1]["error"]
    ledger.release()
    assert buyer.done(60)[0] == patient.done(60)[0] == 0
    again = ask(mill, "r5again", [{"q": "slow", "wait_s": 1}])
    assert again.done(60)[0] == 0
    assert out(again) == ['{"q":"slow"}']
    assert len(ledger.calls) == before + 1


def test_o20_a_success_that_is_none_is_never_a_value(shared: tuple[Mill, Ledger]) -> None:
    mill, ledger = shared
    cases = json.loads((ANSWERS / "O20_responses.json").read_text())

    def scripted(call: Call) -> bytes:
        case = cases[call.question["n"] - 1]
        return response(case["status"], base64.b64decode(case["body_b64"]), case["type"])

    ledger.answer = scripted
    questions = [{"n": case["n"]} for case in cases]
    start = len(ledger.calls)
    report = ask(mill, "o20", questions).done(120)[1]
    found = cells(mill, "o20")
    wrong = {1, 2, 4, 8, 10}
    assert {index + 1 for index, (status, _, _) in found.items() if status == "failed"} == wrong
    assert (report["completed"], report["failed"]) == (5, 5)
    for number in wrong:
        _, cell, value = found[number - 1]
        assert value is None
        assert cell["status"] == "failed"
        assert cell["error"], "a reason that people can read"
    assert found[2][2] is None, "204: no data, for good"
    assert json.loads(found[4][2] or "") == json.loads(found[5][2] or "") == {"name": "Renée"}
    assert json.loads(found[6][2] or "") == []
    assert json.loads(found[8][2] or "") == {"email": "not an address"}
    asked = Counter(call.question.get("n") for call in ledger.calls[start:])
    assert all(times <= 3 for times in asked.values()), "not retried without end"
    before = len(ledger.calls)
    right = [question for question in questions if question["n"] not in wrong]
    assert ask(mill, "o20again", right).done(60)[0] == 0
    assert len(ledger.calls) == before, "no data and not found are answers"


def test_o21_numbers_arrive_digit_by_digit_and_a_nan_ends_in_its_own_row(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    good, bad = ((ANSWERS / f"O21_numbers_{kind}.txt").read_bytes() for kind in ("ok", "bad"))
    ledger.answer = lambda call: response(200, bad if call.question["n"] == 3 else good)
    run = ask(mill, "o21", [{"n": n, "numbers": True} for n in range(8)])
    report = run.done(60)[1]
    assert (report["completed"], report["failed"]) == (7, 1)
    for index, (status, _, value) in cells(mill, "o21").items():
        for text in (value, out(run)[index]):
            if index == 3:
                assert (status, text or None) == ("failed", None)
            else:
                assert '"id":9007199254740993,' in str(text)
                assert '"big":123456789012345678901234567890' in str(text)
    for topic in (PROVIDER_RESULTS, ROWS_COMPLETED, *CHANGELOGS):
        read(mill.settings, topic)  # refuses what is no JSON


def test_o25_what_nobody_can_read_is_set_aside_and_the_work_goes_on(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    records = [json.loads(line) for line in (INPUTS / "O25_records.jsonl").open()]
    values = [
        None if one["value_b64"] is None else base64.b64decode(one["value_b64"]) for one in records
    ]
    topics = (ROWS_INPUT, TOOL_REQUESTS, PROVIDER_RESULTS, ROWS_COMPLETED)
    placed = {
        (topic.name, partition, offset)
        for topic in topics
        for partition, offset in produce(mill.settings, topic, values)
    }
    ledger.answer = lambda call: (200, {"fine": True})
    assert ask(mill, "o25", [{"o25": n} for n in range(40)]).done(120)[0] == 0
    letters = [record.value for record in read(mill.settings, DEAD_LETTER)]
    assert {(one["topic"], one["partition"], one["offset"]) for one in letters} == placed
    assert all(one["reason"] for one in letters)
    for role, topic in (
        ("rows", ROWS_INPUT),
        ("dispatch", TOOL_REQUESTS),
        ("rows", PROVIDER_RESULTS),
    ):
        until_sync(
            lambda: committed(mill.settings, role, topic) == end_of(mill.settings, topic),  # noqa: B023
            within_s=30,
        )
    assert all(worker["ready"] for worker in mill.status()["workers"])
    logs = "".join(path.read_text() for path in (mill.home / "logs").glob("*-0.log"))
    assert logs.count("event=record_set_aside") == len(placed)


@pytest.mark.behaviour("Q1")
def test_o24_a_position_stays_before_open_work_and_a_kill_repeats_only_that(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    case = json.loads((INPUTS / "O24_offsets.json").read_text())
    count = len(case["offsets"])
    one_lane = 'limits=[rate("1000/s")], auth=header("X-Worker", "WORKER")'
    play = write_play(tmp_path / "plays", "lane", provider_options=one_lane)
    ledger.latency_of = lambda call: 600.0 if call.number == 0 else 0.01
    worker = dispatch(mill, 0)
    worker.ready()
    run = mill.start_run(write_rows(tmp_path / "in.csv", numbered(count)), "order", play=play)
    ledger.until_answered(count - 1)
    asks = [one for one in read(mill.settings, TOOL_REQUESTS) if "input" in one.value]
    (partition,) = {one.partition for one in asks}
    first = next(one for one in asks if one.value["input"] == ledger.calls[0].question)
    assert first.offset == min(one.offset for one in asks), "the open one is the oldest"
    results = count - 1
    until_sync(
        lambda: sum(end_of(mill.settings, PROVIDER_RESULTS).values()) >= results, within_s=30
    )
    # Whatever is committed by a stop, or by the death of a worker that has just committed:
    worker.kill_9()
    assert committed(mill.settings, "dispatch", TOOL_REQUESTS).get(partition, 0) == first.offset
    ledger.latency_of = lambda call: 0.01
    dispatch(mill, 0)
    completed(run, count)
    (repeated,) = ledger.repeated().values()
    assert repeated[0].number == 0
    assert len(repeated) == 2
    assert len({call.key for call in ledger.calls}) == count
