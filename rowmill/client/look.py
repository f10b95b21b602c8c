"""Look at runs without driving any: what `runs` and the rows' changelog say."""

from __future__ import annotations

from dataclasses import dataclass

from rowmill.client.follow import Tallies
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.core.accounting import Counts
from rowmill.topics.catalogue import ROWS_CHANGELOG, RUNS
from rowmill.topics.contracts import RunRecord
from rowmill.topics.views import RunsView


@dataclass(frozen=True, slots=True)
class RunLook:
    """How one run stands. `total`: rows of its input, None until all were fed."""

    run_id: str
    dataset: str
    state: str
    reason: str | None
    life: int
    total: int | None
    started_at_ms: int
    updated_at_ms: int
    play: str
    digest: str
    input: str | None
    counts: Counts


async def look_at_runs(settings: Settings, run: str | None = None) -> list[RunLook]:
    """Return all runs, oldest first, or the one named; [] where there is none.

    Raises: LogUnreadable.
    """
    view = RunsView()
    tallies = Tallies()

    def fold_run(record: LogRecord) -> None:
        view.apply(record.key, record.value, record.offset)

    def fold_entry(record: LogRecord) -> None:
        tallies.apply(record, run)

    await LogReader(settings, RUNS, fold_run).read_once()
    wanted = [record for record in view.all() if run is None or record.run == run]
    if wanted:
        await LogReader(settings, ROWS_CHANGELOG, fold_entry).read_once()
    return [_look(record, tallies.counts(record.run)) for record in wanted]


def _look(record: RunRecord, counts: Counts) -> RunLook:
    return RunLook(
        run_id=record.run,
        dataset=record.dataset,
        state=record.state,
        reason=record.reason,
        life=record.life,
        total=record.sealed_total,
        started_at_ms=record.started_at_ms,
        updated_at_ms=record.updated_at_ms,
        play=record.play.name,
        digest=record.play.digest,
        input=record.options.input,
        counts=counts,
    )
