"""The embedded broker as a process: ready, one only, kept, killed, ended."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from rowmill.ops.kafka import embedded
from rowmill.ops.kafka.errors import DataDirectoryBroken, PortDiffers, PortTaken
from rowmill.ops.kafka.layout import Layout
from rowmill.settings import Settings
from tests.kit.broker import OwnBroker, free_port

pytestmark = pytest.mark.broker


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnBroker]:
    found = OwnBroker(tmp_path / "home")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    """One running broker for the tests that leave it as it was."""
    with OwnBroker(tmp_path_factory.mktemp("shared") / "home") as found:
        yield found


async def _write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    for value in values:
        await producer.send_and_wait(topic, value)
    await producer.stop()


async def _read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    at = TopicPartition(topic, 0)
    consumer.assign([at])
    await consumer.seek_to_beginning(at)
    found = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(count)]
    await consumer.stop()
    return found


def test_starting_twice_is_one_broker(shared: OwnBroker) -> None:
    running = embedded.status(shared.settings)
    again = shared.start()
    assert again.already_running
    assert (again.pid, again.bootstrap) == (running.pid, running.bootstrap)


def test_concurrent_starts_make_one_broker(own: OwnBroker) -> None:
    starter = "from tests.kit.broker import *; import sys; from rowmill.settings import Settings\n"
    starter += "print(embedded.start(Settings()).pid)"
    env = os.environ | {
        "ROWMILL_HOME": str(own.settings.home),
        "ROWMILL_KAFKA": "",
        "ROWMILL_KAFKA_PORT": str(own.settings.kafka_port),
        "PYTHONPATH": str(Path(__file__).parents[4]),
    }

    def run(_: int) -> str:
        command = [sys.executable, "-c", starter]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    with ThreadPoolExecutor(3) as pool:
        pids = set(pool.map(run, range(3)))
    assert pids == {f"{embedded.status(own.settings).pid}\n"}


async def test_kill_9_and_restart_keep_what_was_acknowledged(own: OwnBroker) -> None:
    values = [str(number).encode() for number in range(50)]
    own.start()
    await _write(own.bootstrap, "kept", values)
    own.kill_9()
    assert not own.start().already_running
    assert await _read(own.bootstrap, "kept", 50) == values


async def test_stop_and_restart_keep_what_was_acknowledged(own: OwnBroker) -> None:
    own.start()
    await _write(own.bootstrap, "kept", [b"one"])
    own.stop()
    assert not embedded.status(own.settings).running
    own.start()
    assert await _read(own.bootstrap, "kept", 1) == [b"one"]


async def test_a_record_of_a_full_row_fits(shared: OwnBroker) -> None:
    shared.start()
    producer_limit = AIOKafkaProducer(bootstrap_servers=shared.bootstrap, max_request_size=2 << 20)
    await _write(shared.bootstrap, "wide", [])
    await producer_limit.start()
    await producer_limit.send_and_wait("wide", os.urandom(1_000_000))
    await producer_limit.stop()


def test_it_stays_under_400_mb_and_on_this_machine_only(shared: OwnBroker) -> None:
    pid = shared.start().pid
    assert 0 < embedded.status(shared.settings).rss_mb < 400
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_its_files_are_readable_by_their_owner_only(shared: OwnBroker) -> None:
    shared.start()
    layout = Layout.of(shared.settings)
    assert stat.S_IMODE(layout.root.stat().st_mode) == 0o700
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in layout.data.rglob("*")}
    assert {path for path, mode in modes.items() if mode & 0o077} == set()


def test_a_broker_whose_record_was_lost_is_found_again(own: OwnBroker) -> None:
    pid = own.start().pid
    Layout.of(own.settings).state.unlink()
    assert own.start().pid == pid
    Layout.of(own.settings).state.write_text("{")
    own.stop()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_recycled_pid_is_never_killed(own: OwnBroker) -> None:
    own.start()
    state = Layout.of(own.settings).state
    mine = state.read_text()
    own.kill_9()
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    state.write_text(mine.replace(f'"pid": {_pid(mine)}', f'"pid": {bystander.pid}'))
    assert not embedded.status(own.settings).running
    assert not embedded.stop(own.settings)
    assert bystander.poll() is None
    bystander.communicate(b"\n")


def test_a_port_held_by_another_kafka_is_named(shared: OwnBroker, tmp_path: Path) -> None:
    pid = shared.start().pid
    other = Settings(home=tmp_path / "other", kafka="", kafka_port=shared.settings.kafka_port)
    with pytest.raises(PortTaken, match=rf"java \(pid {pid}\).*ROWMILL_KAFKA_PORT=PORT"):
        embedded.start(other)


def test_another_port_than_the_running_brokers_is_refused(shared: OwnBroker) -> None:
    shared.start()
    other = shared.settings.model_copy(update={"kafka_port": free_port()})
    with pytest.raises(PortDiffers, match="rowmill kafka stop"):
        embedded.start(other)


def test_data_that_kafka_finds_corrupt_is_reported_with_its_words(own: OwnBroker) -> None:
    own.start()
    own.stop()
    metadata = Layout.of(own.settings).data / "__cluster_metadata-0" / "quorum-state"
    metadata.write_text("{garbled")
    with pytest.raises(Exception, match="broker.log") as caught:
        own.start()
    assert caught.value.exit_code == 3  # type: ignore[attr-defined]
    assert not embedded.status(own.settings).running


def test_data_of_another_cluster_is_refused_untouched(own: OwnBroker) -> None:
    own.start()
    own.stop()
    layout = Layout.of(own.settings)
    layout.cluster.write_text("AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(DataDirectoryBroken, match="this home's cluster is AAAAAAAAAAAAAAAAAAAAAA"):
        own.start()


def _pid(state: str) -> str:
    return state.split('"pid": ')[1].split(",")[0]
