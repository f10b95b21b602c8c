"""A dispatch worker that loses the broker with records in its buffers, and finds it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rowmill.topics.catalogue import RECEIPTS_CHANGELOG
from tests.faults.asking import (
    answers,
    asks_nothing_again,
    completed,
    dispatch,
    numbered,
    share,
    write_rows,
)
from tests.faults.topic import compact, compacted, end_of, epochs_fell, read
from tests.kit.ledger import Ledger
from tests.kit.mill import Mill
from tests.kit.proxy import TunedBroker
from tests.kit.until import until_sync

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]


@pytest.mark.behaviour("R6")
def test_nothing_of_a_cut_off_owner_comes_back_even_from_a_compacted_changelog(
    mill: Mill, ledger: Ledger, broker_of_mill: TunedBroker, tmp_path: Path
) -> None:
    rows = numbered(150)
    cut_off = dispatch(mill, 0, ROWMILL_KAFKA=broker_of_mill.behind_proxy)
    successor = dispatch(mill, 1)
    cut_off.ready()
    successor.ready()
    share(cut_off, successor)
    ledger.hold()
    run = mill.start_run(write_rows(tmp_path / "in.csv", rows), "cut", "--concurrency", "150")
    until_sync(lambda: len(ledger.open) == len(rows), within_s=60)
    broker_of_mill.proxy.hold()
    ledger.release()  # its answers come: it writes receipts that do not reach the broker
    completed(run, len(rows))
    value, calls = answers(run), len(ledger.calls)
    assert all(len(of_key) == 1 + (of_key[0].worker == "w0") for of_key in ledger.by_key().values())
    settled = end_of(mill.settings, RECEIPTS_CHANGELOG)

    broker_of_mill.proxy.release()
    until_sync(lambda: len(cut_off.assignments()) > 1, within_s=60)
    late = epochs_fell(read(mill.settings, RECEIPTS_CHANGELOG))
    assert [record for record in late if record.offset >= settled[record.partition]], (
        "its buffers were empty: the fault met nothing"
    )
    until_sync(
        lambda: len(successor.logged("late_record_covered")) >= len({one.key for one in late}),
        within_s=60,
    )
    ends = end_of(mill.settings, RECEIPTS_CHANGELOG)
    compact(mill.settings, RECEIPTS_CHANGELOG)
    assert (cut_off.stop(), successor.stop()) == (0, 0)
    for worker in (cut_off, successor):
        shutil.rmtree(worker.store)
    share(dispatch(mill, 1))  # its new epoch closes the segment, which may be compacted then
    until_sync(lambda: compacted(mill.settings, RECEIPTS_CHANGELOG, ends), within_s=60)
    asks_nothing_again(mill, tmp_path / "in.csv", "again", value, calls)
    assert len(ledger.calls) == calls
