"""Cases that users of comparable tools reported, of lanes and batches (O14, O16, O17, O18, O26)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.faults.asking import QUICK, dispatch, share, write_play
from tests.faults.test_cases import ask, out
from tests.kit.ledger import Call, Ledger
from tests.kit.mill import Mill

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

INPUTS = Path(__file__).parents[1] / "inputs"

PLAY = """
import json
from rowmill import CallFailed, Dataset, Params, Provider, RetryPolicy, Tool, batch, rate


class Options(Params):
    base_url: str = "http://127.0.0.1:1"


quick = RetryPolicy(backoff_s=0.05, backoff_s_max=0.05)
storm = Provider("storm", base_url=Options.base_url, limits=[rate("10/s")], concurrency=30)
calm = Provider("calm", base_url=Options.base_url, concurrency=30)
poor = Provider("poor", base_url=Options.base_url, concurrency=5)
stormy = Tool("cases.stormy", storm, post="/storm")
still = Tool("cases.still", calm, post="/calm")
credit = Tool("cases.credit", poor, post="/credit")
by_id = batch(post="/batch", size=50, members="ids", match="id", linger_ms=200)
placed = Tool("cases.placed", calm, post="/one", batch=by_id, retry=quick)
partial = batch(
    post="/partial", size=50, members="ids", match="id", linger_ms=200,
    status="status", error="message", retry_after="retry_after_s",
)
partly = Tool("cases.partly", calm, post="/one", batch=partial)
p1 = Tool("cases.p1", calm, post="/p1", retry=quick)
p2 = Tool("cases.p2", calm, post="/p2", retry=quick)


async def waterfall(question, ctx):
    error = None
    for tool in (p1, p2):
        try:
            found = await ctx.tools.execute(tool, question)
        except CallFailed as failed:
            error = failed
        else:
            if found is not None:
                return found
    if error is not None:
        raise error
    return None


async def resolve(row, ctx):
    question = json.loads(row["question"])
    tool = question.pop("tool")
    if tool == "waterfall":
        return await waterfall(question, ctx)
    return await ctx.tools.execute(globals()[tool], question)


asked = Dataset("cases", key="id").with_column("answer", resolve)
"""


@pytest.fixture(scope="module")
def shared(
    shared_ledger: Ledger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Mill, Ledger]]:
    """One mill with two dispatch workers for all cases. Each asks questions of its own."""
    home = tmp_path_factory.mktemp("cases")
    play = write_play(home / "plays", "play")
    play.write_text(PLAY)
    with Mill(home, play=play, base_url=shared_ledger.url, **QUICK) as mill:
        mill.up(dispatch=0)
        workers = [dispatch(mill, 0), dispatch(mill, 1)]
        for worker in workers:
            worker.ready()
        share(*workers)
        yield mill, shared_ledger


def case(name: str) -> Any:
    return json.loads((INPUTS / name).read_text())


def calls_of(ledger: Ledger, *tools: str) -> list[Call]:
    """Return the calls whose question names one of these."""
    return [call for call in ledger.calls if call.question.get("of") in tools]


@pytest.mark.behaviour("G2")
@pytest.mark.behaviour("Q5")
def test_o14_thirty_calls_told_to_wait_come_back_within_their_limit(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    given = case("O14_storm.json")
    seen: Counter[int] = Counter()
    wait_s = int(given["answers"][0]["first_call_of_each"]["headers"]["Retry-After"])

    def answer(call: Call) -> tuple[int, Any] | bytes:
        if call.question["of"] != "storm":
            return 200, call.question
        seen[call.question["n"]] += 1
        if seen[call.question["n"]] > 1:
            return 200, call.question
        return b"HTTP/1.1 429 X\r\nRetry-After: %d\r\nContent-Length: 2\r\n\r\n{}" % wait_s

    ledger.answer = answer
    late_s = given["provider"]["answers_after_s"]
    ledger.latency_of = lambda call: late_s if call.question["of"] == "storm" else 0.0
    questions = [
        {"tool": "stormy", "of": "storm", "n": n} for n in range(given["requests"])
    ] + [{"tool": "still", "of": "calm", "n": n} for n in range(5)]  # fmt: skip
    code, report = ask(mill, "o14", questions, "--concurrency", "50").done(120)
    ledger.latency_of = lambda call: 0.0
    assert (code, report["completed"]) == (0, len(questions)), "a wait uses up no attempt"
    calls = calls_of(ledger, "storm")
    assert len(calls) == 2 * given["requests"]
    arrivals = sorted(call.arrived_s for call in calls)
    # 2 ms: two requests may take other ways through one machine.
    assert all(
        late - early > 1 - 0.002 for early, late in zip(arrivals, arrivals[10:], strict=False)
    )
    refused = sorted(call.ended_s for call in calls)[: given["requests"]]
    for early, late in pairwise(arrivals):
        told = max((at for at in refused if at < late - 0.1), default=None)
        if told is not None and early < told:
            assert late - told >= wait_s - 0.1, "a call left within the wait that a 429 asked for"
    calm = calls_of(ledger, "calm")
    assert max(call.ended_s for call in calm) < refused[0], "the other provider waits for nobody"


@pytest.mark.behaviour("Q5")
def test_o16_when_credits_are_gone_the_rest_waits_and_a_rerun_asks_only_it(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    given = case("O16_credits.json")
    answered, refused = given["answers"]
    left = {"credits": answered["times"]}

    def answer(call: Call) -> tuple[int, Any]:
        if not left["credits"]:
            return refused["status"], refused["body"]
        left["credits"] -= 1
        return 200, {"n": call.question["n"]}

    ledger.answer = answer
    questions = [{"tool": "credit", "of": "credit", "n": n} for n in range(given["rows"])]
    code, report = ask(mill, "o16", questions).done(60)
    assert code == 1
    assert report["completed"] == 20
    assert "out of credits" in report["reason"]
    assert report["failed"] + report["pending"] == 80
    assert 1 <= report["failed"] <= 2, "the one that was told first, by each worker"
    calls = calls_of(ledger, "credit")
    assert len(calls) - 20 <= given["concurrency"]
    left["credits"] = 1_000
    again = ask(mill, "o16b", questions)
    code, report = again.done(60)
    assert (code, report["completed"]) == (0, 100)
    assert len(calls_of(ledger, "credit")) - len(calls) == 80
    assert sorted(json.loads(one)["n"] for one in out(again)) == list(range(100))


@pytest.mark.behaviour("Q2")
def test_o17_batch_answers_in_another_order_and_with_gaps_reach_their_own_rows(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    given = case("O17_batch.json")

    def answer(call: Call) -> tuple[int, Any]:
        return (200, given["answer"]) if "ids" in call.question else (404, {"error": "no answer"})

    ledger.answer = answer
    before = len(ledger.calls)
    run = ask(mill, "o17", [{"tool": "placed", "id": one} for one in given["sent_for_rows"]])
    code, report = run.done(60)
    assert (code, report["completed"], report["failed"]) == (1, 5, 1)
    found = dict(zip(given["sent_for_rows"], out(run), strict=True))
    for one, value in given["expect"].items():
        wanted = "" if value == "no answer" else json.dumps({"id": one, "v": value[0]})
        assert found[one].replace(" ", "") == wanted.replace(" ", "")
    asked = [call.question for call in ledger.calls[before:]]
    sent = [one for question in asked for one in question.get("ids", [])]
    assert Counter(sent) == Counter("abcde"), "b once for its two rows"
    assert [question for question in asked if "ids" not in question] == [{"id": "d"}]


@pytest.mark.behaviour("Q2")
def test_o18_of_a_batch_that_partly_failed_only_what_may_be_mended_is_asked_again(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    given = case("O18_partial.json")
    wait_s = given["items"]["46-48"]["retry_after_s"]
    seen: Counter[int] = Counter()

    def item(n: int) -> dict[str, Any]:
        seen[n] += 1
        if n >= 49:
            return {"id": n, "status": 422, "message": given["items"]["49-50"]["message"]}
        if n >= 46 and seen[n] == 1:
            return {"id": n, "status": 429, "retry_after_s": wait_s}
        return {"id": n, "status": 200, "value": n * 2}

    ledger.answer = lambda call: (200, [item(n) for n in call.question["ids"]])
    before = len(ledger.calls)
    members = given["members"]
    run = ask(mill, "o18", [{"tool": "partly", "id": n} for n in range(1, members + 1)])
    code, report = run.done(60)
    assert (code, report["completed"], report["failed"]) == (1, 48, 2)
    calls = ledger.calls[before:]
    sent = Counter(n for call in calls for n in call.question["ids"])
    assert {n for n, times in sent.items() if times > 1} == {46, 47, 48}
    assert max(sent.values()) == 2
    again = [
        call for call in calls if any(seen_n in (46, 47, 48) for seen_n in call.question["ids"])
    ]
    first = min(call.ended_s for call in again)
    assert max(call.arrived_s for call in again) - first >= wait_s - 0.1
    values = [json.loads(one)["value"] if one else None for one in out(run)]
    assert values == [n * 2 for n in range(1, 49)] + [None, None]
    assert all("bad company" in failure["error"] for failure in report["failures"])


@pytest.mark.behaviour("D5")
def test_o26_an_error_of_one_provider_is_not_taken_for_nothing_found(
    shared: tuple[Mill, Ledger],
) -> None:
    mill, ledger = shared
    given = case("O26_waterfall.json")["rows"]
    says = {"hit": (200, {"value": 1}), "not found": (200, None), "503 on every try": (503, {})}

    def answer(call: Call) -> tuple[int, Any]:
        row = given[call.question["row"]]
        provider = paths[call.number] = "p2" if call.question["row"] in asked_p1(call) else "p1"
        return says[row[provider]]

    paths: dict[int, str] = {}

    def asked_p1(call: Call) -> set[str]:
        """Return the rows whose call can only be p2's: p1 has answered, or failed three times."""
        done = Counter(
            one.question["row"]
            for one in ledger.calls
            if one.number < call.number and paths.get(one.number) == "p1"
        )
        return {
            row
            for row, times in done.items()
            if times >= (3 if given[row]["p1"].startswith("503") else 1)
        }

    ledger.answer = answer
    questions = [{"tool": "waterfall", "row": row} for row in given]
    run = ask(mill, "o26", questions)
    code, report = run.done(60)
    assert (code, report["completed"], report["failed"]) == (1, 3, 1)
    by_row: dict[str, Counter[str]] = {row: Counter() for row in given}
    for call in ledger.calls:
        if call.number in paths:
            by_row[call.question["row"]][paths[call.number]] += 1
    assert by_row == {
        "1": Counter(p1=1), "2": Counter(p1=1, p2=1), "3": Counter(p1=3, p2=1),
        "4": Counter(p1=3, p2=1),
    }  # fmt: skip
    assert [bool(one) for one in out(run)] == [True, True, True, False]
    paths.clear()
    before = len(ledger.calls)
    ledger.answer = lambda call: (200, {"value": 2})
    assert ask(mill, "o26b", questions[3:]).done(60)[0] == 0
    assert len(ledger.calls) - before == 1, "p1 alone: that p2 has nothing is known"
