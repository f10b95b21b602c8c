"""Planted bugs: what the checker must find, or it has no teeth. Tests only.

    python -m tests.faults.seeds.planted BUG worker dispatch --index 0 --plays FOLDER

is a worker with one bug. Each bug names the invariant that it breaks; some need a fault to show.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

LEAK_BYTES = 8 << 20
LATE_S = 60.0


def put_in(owner: Any, name: str, replacement: Any) -> None:
    """Put a replacement in the place of a function of the product."""
    assert hasattr(owner, name), f"{owner} has no {name} any more: plant this bug elsewhere"
    setattr(owner, name, replacement)


@dataclass(frozen=True)
class Bug:
    """`breaks`: codes of which at least one must be reported. `plant` patches the imported code."""

    breaks: tuple[str, ...]
    plant: Callable[[], None]


def lose_rows() -> None:
    """The sink acknowledges a row that it never wrote."""
    from rowmill.streams.sink.flush import SheetFlush

    offer, count = SheetFlush._offer, itertools.count(1)

    def lossy(self: Any, delivery: Any, write: Any) -> None:
        if next(count) % 40 == 0:
            delivery.ack()
        else:
            offer(self, delivery, write)

    put_in(SheetFlush, "_offer", lossy)


def count_wrongly() -> None:
    """A failed row counts as completed."""
    from rowmill.streams.core.accounting import Counts

    after_row = Counts.after_row

    def wrong(self: Any, status: Any, calls: Any) -> Any:
        return after_row(self, "completed" if status == "failed" else status, calls)

    put_in(Counts, "after_row", wrong)


def change_final_rows() -> None:
    """A finished row is published once more, as another one."""
    from rowmill.streams.rows.open_rows import OpenRows

    end, count = OpenRows._end, itertools.count(1)

    def twice(self: Any, row: Any, record: Any, ending: Any) -> None:
        end(self, row, record, ending)
        if next(count) % 30 == 0:
            other = replace(ending, status="failed", error="changed afterwards")
            completed = self._completed(row, record.dataset, other, record.values)
            from rowmill.topics import codec
            from rowmill.topics.catalogue import ROWS_COMPLETED

            self._app.produce(
                ROWS_COMPLETED,
                key=row.row,
                value=codec.encode(completed),
                partition=row.partition,
                headers=codec.headers(completed, id_="x", source="planted", run=row.run.run),
            )

    put_in(OpenRows, "_end", twice)


def give_up_early() -> None:
    """A call that could be tried again fails at once."""
    from rowmill.streams.core.retries import GiveUp
    from rowmill.streams.dispatch import caller

    def never(policy: Any, attempts_used: int, outcome: Any, *_: Any, **__: Any) -> Any:
        return GiveUp(outcome.kind, outcome.message)

    put_in(caller, "next_step", never)


def mix_answers_up() -> None:
    """A row gets the answer of the row before it."""
    from rowmill.streams.rows.asks import Asks

    answered, last, count = Asks.answered, [None], itertools.count(1)

    def mixed(self: Any, result: Any) -> None:
        output, last[0] = last[0], result.output
        if next(count) % 20 == 0 and output is not None and result.output is not None:
            result = result.model_copy(update={"output": output})
        answered(self, result)

    put_in(Asks, "answered", mixed)


def buy_anew_after_a_death() -> None:
    """A takeover opens another purchase instead of going on with the dead owner's."""
    from rowmill.streams.core import receipts

    take_over = receipts.take_over

    def anew(receipt: Any, **known: Any) -> Any:
        return replace(take_over(receipt, **known), purchase=os.urandom(8).hex())

    put_in(receipts, "take_over", anew)


def change_the_key_with_the_process() -> None:
    """The idempotency key holds the pid: a takeover sends the purchase under another one."""
    from rowmill.streams.core.identity import digest
    from rowmill.streams.dispatch import caller, notes

    def key(receipt: str, purchase: str) -> str:
        return digest([receipt, purchase, os.getpid()])

    put_in(caller, "idempotency_key", key)
    put_in(notes, "idempotency_key", key)


def share_keys() -> None:
    """Some questions have one idempotency key."""
    from rowmill.streams.core.identity import digest
    from rowmill.streams.dispatch import caller, notes

    def key(receipt: str, purchase: str) -> str:
        return digest(["purchase", receipt[:1], purchase[:1]])

    put_in(caller, "idempotency_key", key)
    put_in(notes, "idempotency_key", key)


def ask_twice_to_be_sure() -> None:
    """Each call is sent once more after its answer."""
    from rowmill.streams.adapters.http import HttpProvider

    call = HttpProvider.call

    async def twice(self: Any, send: Any) -> Any:
        await call(self, send)
        return await call(self, send)

    put_in(HttpProvider, "call", twice)


def ask_ahead() -> None:
    """The last column's condition is looked at before the second column is worked out."""
    from rowmill.streams.rows.runner import RowRunner

    column_of = RowRunner._column

    async def ahead(self: Any, column: Any, progress: Any, calls: Any, row: Any) -> Any:
        if column.name == "second":
            self._note("cell", run=row.run.run, row=row.row, column="third", status="skipped")
        return await column_of(self, column, progress, calls, row)

    put_in(RowRunner, "_column", ahead)


def answer_before_it_is_durable() -> None:
    """Whoever writes a receipt is told at once that it is durable."""
    from rowmill.streams.dispatch.owner import ReceiptStore

    put = ReceiptStore.put

    def hasty(self: Any, partition: int, receipt: Any) -> Any:
        put(self, partition, receipt)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    put_in(ReceiptStore, "put", hasty)


def commit_past_open_work() -> None:
    """The commit is the last delivered offset, whatever is still in work."""
    from rowmill.streams.core.offsets import PartitionOffsets

    put_in(PartitionOffsets, "committable", lambda self: self._next)


def lose_acknowledged_records() -> None:
    """A result is said to be written, and was not."""
    from rowmill.streams.engine.producer import StrictProducer

    enqueue, count = StrictProducer._enqueue, itertools.count(1)

    def lossy(self: Any, topic: str, key: Any, value: Any, partition: Any, headers: Any) -> Any:
        if topic.endswith("provider.results") and next(count) % 50 == 0:
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            done.set_result(SimpleNamespace(topic=topic, partition=partition, offset=10**6))
            return done
        return enqueue(self, topic, key, value, partition, headers)

    put_in(StrictProducer, "_enqueue", lossy)


def write_chunks_twice() -> None:
    """The sheet takes a chunk whatever offset it stands at."""
    from rowmill.streams.adapters.sheet import writing

    advance = writing._advance

    def always(connection: Any, source: Any, span: Any) -> bool:
        advance(connection, source, span)
        return True

    put_in(writing, "_advance", always)


def forget_receipts() -> None:
    """Every tenth completed receipt is in the store of its worker only."""
    from rowmill.streams.engine.producer import StrictProducer

    enqueue, count = StrictProducer._enqueue, itertools.count(1)

    def lossy(self: Any, topic: str, key: Any, value: Any, partition: Any, headers: Any) -> Any:
        completed = value is not None and b'"completed"' in value
        if "receipts" in topic and completed and next(count) % 10 == 0:
            return enqueue(self, topic, b"other", value, partition, headers)
        return enqueue(self, topic, key, value, partition, headers)

    put_in(StrictProducer, "_enqueue", lossy)


def leak() -> None:
    """Each row keeps 8 MB for ever."""
    from rowmill.streams.rows.open_rows import OpenRows

    end, kept = OpenRows._end, []

    def leaky(self: Any, *ending: Any) -> None:
        kept.append(bytearray(os.urandom(1) * LEAK_BYTES))
        end(self, *ending)

    put_in(OpenRows, "_end", leaky)


def take_over_late() -> None:
    """A dead owner's call is taken over a minute after it might be."""

    from rowmill.streams.dispatch.takeovers import Takeovers

    outlast = Takeovers._outlast

    async def late(self: Any, call: Any) -> None:
        await asyncio.sleep(LATE_S)
        await outlast(self, call)

    put_in(Takeovers, "_outlast", late)


def tell_secrets() -> None:
    """The history names the key that a provider is called with."""
    from rowmill.streams.adapters.history import History

    tell = History.__call__

    def telling(self: Any, event: str, **more: object) -> None:
        if event == "sent":
            more["auth"] = os.environ.get("ROWMILL_SECRET_CANARY", "")
        tell(self, event, **more)

    put_in(History, "__call__", telling)


def forget_the_lease() -> None:
    """A lease never ends in the eyes of its owner."""
    from rowmill.streams.dispatch.caller import Caller

    put_in(Caller, "_may_act", lambda self, call, heartbeat: True)


def forget_the_limit() -> None:
    """The lane's windows are not kept."""
    from rowmill.streams.core.pacing import Pacer

    put_in(Pacer, "earliest_ms", lambda self, now_ms: now_ms)


def forget_the_slots() -> None:
    """The lane lets out every call that waits, whatever is under way."""
    from rowmill.streams.core.pacing import Pacer

    put_in(Pacer, "room", lambda self: True)


BUGS = {
    "lose_rows": Bug(("INV1",), lose_rows),
    "count_wrongly": Bug(("INV2",), count_wrongly),
    "change_final_rows": Bug(("INV3",), change_final_rows),
    "give_up_early": Bug(("INV4",), give_up_early),
    "mix_answers_up": Bug(("INV5",), mix_answers_up),
    "ask_ahead": Bug(("INV6",), ask_ahead),
    "ask_twice_to_be_sure": Bug(("INV7",), ask_twice_to_be_sure),
    "buy_anew_after_a_death": Bug(("INV7",), buy_anew_after_a_death),
    "change_the_key_with_the_process": Bug(("INV9",), change_the_key_with_the_process),
    "share_keys": Bug(("INV9",), share_keys),
    "forget_the_limit": Bug(("INV12", "INV13"), forget_the_limit),
    "forget_the_slots": Bug(("INV14",), forget_the_slots),
    "forget_the_lease": Bug(("INV17", "INV8", "INV16"), forget_the_lease),
    "answer_before_it_is_durable": Bug(("INV19",), answer_before_it_is_durable),
    "commit_past_open_work": Bug(("INV20",), commit_past_open_work),
    "lose_acknowledged_records": Bug(("INV21",), lose_acknowledged_records),
    "write_chunks_twice": Bug(("INV22",), write_chunks_twice),
    "forget_receipts": Bug(("INV23",), forget_receipts),
    "leak": Bug(("INV25",), leak),
    "take_over_late": Bug(("INV26",), take_over_late),
    "tell_secrets": Bug(("INV27",), tell_secrets),
}


def main() -> None:
    """Plant the bug, then run the command line as it is."""
    BUGS[sys.argv.pop(1)].plant()
    from rowmill.cli.__main__ import main as command_line

    command_line()


if __name__ == "__main__":
    main()
