"""A worker process that does what a test tells it, line by line, through the engine's own API.

Run as a script: role, data directory; the settings come from `ROWMILL_*`. One JSON object a line:
commands on stdin, events on stdout. `PUPPET_MODE`: `hold` leaves records open, `ack` acknowledges
them at once, `put` writes each to the table first, `stock` leaves that to Faust's own iterator, `block`
never takes a second row of rows.input, `raise` raises at the first record. `PUPPET_DIE_BEFORE_STORE` names a key: the process
kills itself with -9 when an entry of that key is about to enter the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rowmill.settings import Settings
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.engine.app import Delivery, RoleApp, role_app, run
from rowmill.streams.engine.stores import PartitionStore
from rowmill.topics.catalogue import (
    PROVIDER_RESULTS,
    ROWS_CHANGELOG,
    ROWS_COMPLETED,
    ROWS_INPUT,
    TopicDefinition,
)

TOPICS: dict[str, TopicDefinition] = {
    topic.name: topic for topic in (ROWS_INPUT, PROVIDER_RESULTS, ROWS_COMPLETED)
}


def say(event: str, **more: Any) -> None:
    """Write an event; `os.write` survives a kill -9, a buffer does not."""
    os.write(1, json.dumps({"event": event, **more}).encode() + b"\n")


class Puppet:
    """The app and what it holds."""

    def __init__(self, app: RoleApp, mode: str) -> None:
        self.app = app
        self.mode = mode
        self.held: dict[tuple[str, int, int], list[Delivery]] = {}
        self.table = app.durable_table("rows", ROWS_CHANGELOG, derive=last_of)
        app.on_partitions_ready.append(self.ready)
        app.on_partitions_lost.append(self.lost)
        app.head_is_waiting = lambda delivery: True
        self.agent(ROWS_INPUT)
        self.agent(PROVIDER_RESULTS)

    def agent(self, topic: TopicDefinition) -> None:
        """Read a topic."""

        async def read(stream: Any) -> None:
            if self.mode == "stock":
                async for event in stream.events():
                    self.take(self.app.delivery(event))
                return
            async for event in stream.noack().events():
                self.take(self.app.delivery(event))
                if self.mode == "block" and topic is ROWS_INPUT:
                    await asyncio.Event().wait()

        self.app.agent(self.app.raw_topic(topic), name=topic.name)(read)

    def take(self, delivery: Delivery) -> None:
        """Do with a record what the mode says."""
        place = (delivery.topic, delivery.partition, delivery.offset)
        key = (delivery.key or b"").decode()
        say("delivered", place=place, key=key, assignment=delivery.assignment)
        self.held.setdefault(place, []).append(delivery)
        if self.mode == "raise":
            raise RuntimeError("as told")
        if self.mode == "ack":
            delivery.ack()
        elif self.mode == "put" and delivery.topic == ROWS_INPUT.name:
            self.watch("put", key, self.table.put(delivery.partition, key, b'"done"'), delivery)

    def watch(
        self, event: str, key: str, future: asyncio.Future[Any], delivery: Delivery | None = None
    ) -> None:
        """Say what came of a write, and acknowledge a record once it is durable."""

        def tell(done: asyncio.Future[Any]) -> None:
            error = done.exception()
            if error is None and delivery is not None:
                delivery.ack()
            offset = getattr(done.result(), "offset", None) if error is None else None
            say(event, key=key, error=type(error).__name__ if error else None, offset=offset)

        future.add_done_callback(tell)

    async def ready(self, partitions: set[int]) -> None:
        """Say that partitions are owned."""
        epochs = {partition: self.app.epoch(partition) for partition in partitions}
        say("ready", partitions=sorted(partitions), epochs=epochs)

    async def lost(self, partitions: set[int]) -> None:
        """Say that partitions are about to go."""
        owned = [partition for partition in sorted(partitions) if self.app.owns(partition)]
        say("lost", partitions=sorted(partitions), owned=owned)

    def obey(self, command: dict[str, Any]) -> None:
        """Do one command."""
        name = command.pop("do")
        try:
            getattr(self, f"do_{name}")(**command)
        except Exception as error:  # noqa: BLE001 - the test reads it
            say(name, error=type(error).__name__, text=str(error))

    def do_ack(
        self, topic: str, partition: int, offset: int, assignment: int | None = None
    ) -> None:
        for delivery in self.held[topic, partition, offset]:
            if assignment in (None, delivery.assignment):
                delivery.ack()
                say("ack", live=delivery.live, assignment=delivery.assignment)

    def do_put(self, partition: int, key: str, value: Any) -> None:
        self.watch("put", key, self.table.put(partition, key, json.dumps(value).encode()))

    def do_delete(self, partition: int, key: str) -> None:
        self.watch("delete", key, self.table.delete(partition, key))

    def do_get(self, partition: int, key: str) -> None:
        stored = self.table.owned(partition).store.get(key.encode())
        seen = self.table.get(partition, key)
        say("get", key=key, value=_text(seen), stored=_text(stored))

    def do_scan(self, partition: int, prefix: str = "") -> None:
        found = {key: value.decode() for key, value in self.table.scan(partition, prefix)}
        found.pop("!epoch", None)
        say("scan", partition=partition, entries=found)

    def do_standby(self) -> None:
        stores = self.app.ownership._standby_stores
        say("standby", offsets={tp.partition: store.next_offset for tp, store in stores.items()})

    def do_block(self, seconds: float) -> None:
        time.sleep(seconds)

    def do_produce(self, topic: str, key: str, size: int, partition: int | None = None) -> None:
        sent = self.app.produce(TOPICS[topic], key=key, value=b"x" * size, partition=partition)
        self.watch("produced", key, sent)

    def do_pause(self, topic: str, partition: int) -> None:
        self.app.pause(TOPICS[topic], partition)
        say("pause")

    def do_resume(self, topic: str, partition: int) -> None:
        self.app.resume(TOPICS[topic], partition)
        say("resume")


def last_of(key: str, value: bytes) -> Iterable[tuple[str, bytes]]:
    """The derived entry of the tests: the last key of `row/...` keys."""
    return [("last", json.dumps(key).encode())] if key.startswith("row/") else []


def die_before_store(victim: str) -> None:
    """Kill this process when an entry of `victim` is about to enter a store."""
    write = PartitionStore.write

    def deadly(
        self: PartitionStore, entries: Any, next_offset: int, *, ahead: bool = False
    ) -> None:
        listed = list(entries)
        if any(entry.key == victim.encode() for entry in listed):
            say("dying", key=victim)
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, listed, next_offset, ahead=ahead)

    PartitionStore.write = deadly  # type: ignore[method-assign]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def main(role: Any, store: str) -> int:
    """Run until told to stop."""
    if victim := os.environ.get("PUPPET_DIE_BEFORE_STORE"):
        die_before_store(victim)
    app = role_app(
        role,
        Settings(),
        store=Path(store),
        secrets=EnvironmentSecrets(),
        standbys=int(os.environ.get("PUPPET_STANDBYS", "0")),
    )
    puppet = Puppet(app, os.environ.get("PUPPET_MODE", "hold"))

    def listen() -> None:
        for line in sys.stdin:
            app.loop.call_soon_threadsafe(puppet.obey, json.loads(line))

    def on_ready() -> None:
        say("READY", instance=app.instance)
        threading.Thread(target=listen, daemon=True).start()

    return run(app, on_ready=on_ready)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
