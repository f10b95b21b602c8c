"""Look at all that a run left behind: topics, offsets, sheet, and every file that may hold a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rowmill.streams.adapters.secrets import traces
from rowmill.streams.adapters.sheet.reading import SheetReader
from rowmill.streams.core.identity import row_id
from rowmill.topics.catalogue import (
    CHANGELOGS,
    PROVIDER_RESULTS,
    ROWS_COMPLETED,
    ROWS_INPUT,
    RUNS_EVENTS,
    TOOL_REQUESTS,
)
from tests.faults.seeds.shape import COLUMNS, Shape, answer_of, cell_of
from tests.faults.seeds.world import CANARY, World
from tests.faults.topic import Ends, Seen, committed, end_of, read
from tests.history.finals import Finals, SheetRow, TopicRecord
from tests.kit.until import until_sync

READ_BY = {
    "rows": (ROWS_INPUT, PROVIDER_RESULTS),
    "dispatch": (TOOL_REQUESTS,),
    "sink": (ROWS_COMPLETED,),
}
TOPICS = (ROWS_INPUT, TOOL_REQUESTS, PROVIDER_RESULTS, ROWS_COMPLETED, RUNS_EVENTS, *CHANGELOGS)
COMMITTED_WITHIN_S = 30


def until_committed(world: World) -> None:
    """Return once every role has committed all that it reads. Raises: TimeoutError."""
    until_sync(lambda: _open(world) == {}, within_s=COMMITTED_WITHIN_S, every_s=0.5)


def _open(world: World) -> dict[str, Ends]:
    found, settings = {}, world.mill.settings
    for role, topics in READ_BY.items():
        for topic in topics:
            done, ends = committed(settings, role, topic), end_of(settings, topic)
            left = {one: end for one, end in ends.items() if end and done.get(one, 0) < end}
            if left:
                found[topic.name] = left
    return found


def collect(
    world: World, shape: Shape, report: dict[str, Any] | None, sheet: list[SheetRow]
) -> Finals:
    """Read everything, with the workers stopped and the broker up."""
    settings = world.mill.settings
    topics = {topic.name: _records(read(settings, topic)) for topic in TOPICS}
    return Finals(
        input_rows=[(row_id("seeded", line["id"], line), dict(line)) for line in shape.lines],
        topics=topics,
        ends={topic.name: end_of(settings, topic) for topic in TOPICS},
        committed={
            topic.name: committed(settings, role, topic)
            for role, names in READ_BY.items()
            for topic in names
        },
        sheet=sheet,
        report=report,
        answer_of=answer_of,
        columns=list(COLUMNS),
        cell_of=cell_of,
        canaries=canaries(world.home),
        memory_mb=dict(world.memory_mb),
    )


def read_sheet(world: World) -> list[SheetRow]:
    """Return the sheet's rows, cells as JSON values, in the order of the input."""
    found: list[SheetRow] = []
    with SheetReader(f"sqlite:///{world.home / 'sheet.sqlite'}") as reader:
        after: tuple[int, str] | None = None
        while rows := reader.page("seeded", after=after):
            for row in rows:
                cells = {
                    column: _value(text, row.output_cells[column].json)
                    for column, text in row.outputs.items()
                    if column in row.output_cells
                }
                found.append(SheetRow(row.row, row.index, row.status, row.error, cells))
            after = rows[-1].index, rows[-1].row
    return found


def canaries(home: Path) -> list[str]:
    """Return every file below `home` that holds the secret in some form; plays name none."""
    forms = traces(CANARY)
    found = []
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if any(form in content for form in forms):
                found.append(str(path.relative_to(home)))
    return found


def _value(text: str | None, is_json: bool) -> Any:
    return json.loads(text) if text is not None and is_json else text


def _records(seen: list[Seen]) -> list[TopicRecord]:
    return [TopicRecord(one.partition, one.offset, one.key, one.value, one.epoch) for one in seen]


def dump(finals: Finals, folder: Path) -> None:
    """Write the topics as JSON lines, for whoever looks at a violation."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in (finals.topics or {}).items():
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for one in records:
                line = {
                    "partition": one.partition,
                    "offset": one.offset,
                    "key": one.key,
                    "epoch": one.epoch,
                    "value": one.value,
                }
                file.write(json.dumps(line) + "\n")
