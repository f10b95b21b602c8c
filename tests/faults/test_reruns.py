"""What is asked anew, and what is not: by another setting, after a disaster, by force."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rowmill.topics.catalogue import CHANGELOGS
from tests.faults.asking import (
    answers,
    asks_nothing_again,
    completed,
    dispatch,
    numbered,
    share,
    write_play,
    write_rows,
)
from tests.faults.topic import compact, compacted, end_of
from tests.kit.ledger import Ledger
from tests.kit.mill import Mill
from tests.kit.proxy import TunedBroker
from tests.kit.until import until_sync

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]

PATIENT: dict[str, Any] = {}
"""The default lease of 20 s: a broker that is away for less costs no call."""


@pytest.mark.behaviour("R1")
def test_a_rotated_secret_another_rate_worker_count_or_lane_name_asks_nothing_again(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    rows, input_ = numbered(40), write_rows(tmp_path / "in.csv", numbered(40))
    key = 'auth=header("X-Worker", "WORKER")'
    mill.env["ROWMILL_SECRET_WORKER"] = "first"
    worker = mill.worker("dispatch", 0)
    worker.ready()
    run = mill.start_run(input_, "first")
    completed(run, len(rows))
    known, calls = answers(run), len(ledger.calls)
    assert calls == len(rows)
    assert len(ledger.of("first")) == calls, "the secret was sent"

    assert worker.stop() == 0
    mill.env["ROWMILL_SECRET_WORKER"] = "rotated"
    workers = [mill.worker("dispatch", 0), mill.worker("dispatch", 1)]
    share(*workers)
    asks_nothing_again(mill, input_, "rotated", known, calls)
    for name, provider, options in (
        ("rated", "ledger", f'limits=[rate("50/s"), rate("900/min")], concurrency=3, {key}'),
        ("renamed", "renamed", f'limits=[rate("70/s")], {key}'),
    ):
        play = write_play(tmp_path / "plays", name, provider=provider, provider_options=options)
        asks_nothing_again(mill, input_, name, known, calls, play=play)
    assert len(ledger.calls) == calls

    other = write_play(tmp_path / "plays", "other", provider_options=f'scope="other", {key}')
    assert completed(mill.start_run(input_, "scope", play=other), len(rows))["calls"] == calls
    mill.base_url = ledger.url.replace("127.0.0.1", "localhost")
    assert completed(mill.start_run(input_, "host"), len(rows))["calls"] == calls
    assert len(ledger.calls) == 3 * calls
    assert ledger.repeated() == {}, "another scope or host is another purchase"


@pytest.mark.behaviour("R1")
def test_receipts_past_their_time_to_live_are_deleted_and_bought_anew(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    rows, input_ = numbered(40), write_rows(tmp_path / "in.csv", numbered(40))
    worker = dispatch(mill, 0)
    worker.ready()
    completed(mill.start_run(input_, "first"), len(rows))
    assert worker.stop() == 0
    worker = dispatch(mill, 0, ROWMILL_RECEIPT_TTL_DAYS="1")
    share(worker)
    assert completed(mill.start_run(input_, "kept"), len(rows))["calls"] == 0
    assert worker.stop() == 0
    share(dispatch(mill, 0, ROWMILL_RECEIPT_TTL_DAYS="0.000001"))
    until_sync(lambda: json.loads(mill.rowmill("receipts", "list", "--json")) == [], within_s=60)
    assert completed(mill.start_run(input_, "anew"), len(rows))["calls"] == len(rows)


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize("mill", [PATIENT], indirect=True)
def test_a_killed_broker_deleted_tables_and_a_compacted_changelog_change_no_answer(
    mill: Mill, ledger: Ledger, broker_of_mill: TunedBroker, tmp_path: Path
) -> None:
    rows, input_ = numbered(200), write_rows(tmp_path / "in.csv", numbered(200))
    worker = dispatch(mill, 0)
    worker.ready()
    ledger.hold()
    run = mill.start_run(input_, "killed", "--concurrency", "100")
    ledger.until_open(100)
    broker_of_mill.kill_9()
    ledger.release()  # the answers come while no broker can take them
    ledger.until_answered(100)
    broker_of_mill.start()
    completed(run, len(rows))
    known, calls = answers(run), len(ledger.calls)
    assert ledger.repeated() == {}
    assert calls == len(rows)

    assert worker.stop() == 0
    ends = [(topic, end_of(mill.settings, topic)) for topic in CHANGELOGS]
    mill.rowmill("down")
    for topic in CHANGELOGS:
        compact(mill.settings, topic)
    shutil.rmtree(tmp_path / "stores")
    mill.up(dispatch=0)
    share(dispatch(mill, 0))
    for topic, end in ends:
        until_sync(lambda: compacted(mill.settings, topic, end), within_s=60)  # noqa: B023
    same = mill.start_run(input_, "killed")  # the finished run itself, from its rebuilt entries
    assert completed(same, len(rows))["life"]["calls"] == 0
    assert answers(same) == known
    asks_nothing_again(mill, input_, "again", known, calls)
    assert len(ledger.calls) == calls


@pytest.mark.behaviour("R2")
def test_kill_9_of_rows_in_a_forced_run_buys_each_question_once(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    rows, input_ = numbered(300), write_rows(tmp_path / "in.csv", numbered(300))
    worker = dispatch(mill, 0)
    worker.ready()
    completed(mill.start_run(input_, "plain", "--concurrency", "100"), len(rows))
    assert len(ledger.calls) == len(rows)
    ledger.hold()
    forced = mill.start_run(input_, "forced", "--force", "--concurrency", "100")
    ledger.until_open(100)
    ledger.release()
    ledger.until_answered(len(rows) + 120)
    mill.kill_9("rows")
    report = completed(forced, len(rows))
    assert ledger.repeated() == {}
    assert len(ledger.calls) == 2 * len(rows)
    assert set(ledger.questions().values()) == {2}
    assert report["calls"] == len(rows)
    value = answers(forced)
    assert min(one["arrival"] for one in value.values()) >= len(rows), "an old answer was told"
    asks_nothing_again(mill, input_, "after", value, len(ledger.calls))
