"""How processes are kept: real processes and signals, with stand-ins for the roles' work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from rowmill.errors import UsageError
from rowmill.ops.supervisor import control, logfiles, records, spawn
from rowmill.ops.supervisor.layout import ROLES, Layout, Role
from rowmill.ops.supervisor.locks import held
from rowmill.ops.supervisor.status import status
from rowmill.settings import Settings
from tests.kit import stand_in
from tests.kit.until import until_sync


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A home whose "cluster" is a port that accepts connections; all is ended afterwards."""
    monkeypatch.setattr(spawn, "supervisor_command", stand_in.supervisor_command)
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        port = cluster.getsockname()[1]
        home = tmp_path / "home"
        home.mkdir()
        settings = Settings(home=home, kafka=f"127.0.0.1:{port}", drain_s=60)
        yield settings
        try:
            control.down(settings)
        except control.SupervisorFailed:
            pass
        assert records.live_workers(Layout.of(settings)) == []


ONE: dict[Role, int] = {"rows": 1}


def pids(settings: Settings) -> dict[str, int]:
    return {
        f"{worker['role']}-{worker['index']}": worker["pid"]
        for worker in status(settings)["workers"]
        if worker["pid"] and worker["ready"]
    }


def test_up_leaves_every_worker_ready_and_down_leaves_none(settings: Settings) -> None:
    control.up(settings, [settings.home], {"rows": 2, "dispatch": 1, "sink": 1})
    assert set(pids(settings)) == {"rows-0", "rows-1", "dispatch-0", "sink-0"}
    assert status(settings)["kafka"]["ready"]
    assert control.down(settings)
    assert status(settings)["workers"] == []
    assert not control.down(settings)


def test_two_ups_on_one_home_start_one_set(settings: Settings) -> None:
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: control.up(settings, [settings.home]), range(2)))
    assert both[0].pid == both[1].pid
    supervisor = psutil.Process(both[0].pid)
    assert len(supervisor.children()) == len(ROLES)


def test_a_killed_worker_is_replaced_at_once(settings: Settings) -> None:
    control.up(settings, [settings.home])
    before = pids(settings)
    for role in ROLES:
        os.kill(before[f"{role}-0"], signal.SIGKILL)
    until_sync(
        lambda: len(now := pids(settings)) == 3 and not set(now.values()) & set(before.values()),
        within_s=30,
    )


def test_a_worker_that_never_becomes_ready_is_given_up_with_its_words(settings: Settings) -> None:
    stand_in.behave(settings.home, "rows", stand_in.REFUSE_INFRASTRUCTURE)
    with pytest.raises(control.SupervisorFailed, match=r"rows-0 ended 5 times") as failed:
        control.up(settings, [settings.home], ONE)
    assert "error: the store is full." in str(failed.value)
    assert failed.value.exit_code == 3
    assert status(settings)["workers"] == []


def test_a_worker_that_refuses_its_input_is_not_tried_again(settings: Settings) -> None:
    stand_in.behave(settings.home, "rows", stand_in.REFUSE_USAGE)
    with pytest.raises(control.SupervisorFailed, match="line 3: no such column") as failed:
        control.up(settings, [settings.home], ONE)
    assert failed.value.exit_code == 2
    log = logfiles.tail(Layout.of(settings).worker_log("rows", 0), 100)
    assert sum("no such column" in line for line in log) == 1


def test_a_worker_that_hangs_at_its_end_is_killed_and_said(settings: Settings) -> None:
    stand_in.behave(settings.home, "rows", stand_in.IGNORE_TERM)
    control.up(settings.model_copy(update={"drain_s": 0.5}), [settings.home], ONE)
    with pytest.raises(control.SupervisorFailed, match="rows-0 had to be killed") as failed:
        control.down(settings)
    assert failed.value.exit_code == 3


def test_workers_do_not_outlive_a_killed_supervisor(settings: Settings) -> None:
    supervisor = control.up(settings, [settings.home], ONE)
    os.kill(supervisor.pid, signal.SIGKILL)
    until_sync(lambda: not records.live_workers(Layout.of(settings)), within_s=20)


def test_up_after_a_killed_supervisor_replaces_what_it_left(settings: Settings) -> None:
    first = control.up(settings, [settings.home], ONE)
    before = pids(settings)
    os.kill(first.pid, signal.SIGKILL)
    until_sync(lambda: not held(Layout.of(settings).supervisor_lock), within_s=5)
    second = control.up(settings, [settings.home], ONE)
    assert second.pid != first.pid
    assert len(pids(settings)) == 1
    assert not set(pids(settings).values()) & set(before.values())


def test_a_stale_record_never_makes_a_strangers_pid_ours(settings: Settings) -> None:
    """A pid file may name a process of somebody else by now; only a held lock proves a pid."""
    layout = Layout.of(settings)
    layout.prepare()
    stranger = records.WorkerRecord(
        role="rows", index=0, pid=os.getpid(), started=0, ready=True, supervised=True
    )
    records.write(layout.worker_record("rows", 0), stranger)
    assert status(settings)["workers"] == []
    assert not control.down(settings)


def test_a_run_stops_what_it_started(settings: Settings) -> None:
    with control.ensure(settings, [settings.home], ONE) as workers:
        assert workers.started
        workers.check()
        assert len(pids(settings)) == 1
    assert status(settings)["supervisor"] is None


def test_a_run_that_fails_stops_what_it_started_all_the_same(settings: Settings) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        control.ensure(settings, [settings.home], ONE),
    ):
        raise KeyboardInterrupt
    assert status(settings)["supervisor"] is None


def test_a_run_leaves_what_up_started(settings: Settings) -> None:
    control.up(settings, [settings.home], ONE)
    before = pids(settings)
    plays = settings.home / "plays"
    plays.mkdir()
    with control.ensure(settings, [plays], ONE) as workers:
        assert not workers.started
    assert pids(settings) == before


def test_a_second_run_keeps_the_workers_of_the_first(settings: Settings) -> None:
    with control.ensure(settings, [settings.home], ONE) as second_uses:
        inside, leave = threading.Event(), threading.Event()

        def second() -> None:
            with control.ensure(settings, [settings.home], ONE) as workers:
                assert workers.supervisor_pid == second_uses.supervisor_pid
                inside.set()
                leave.wait(60)

        with ThreadPoolExecutor() as pool:
            ended = pool.submit(second)
            assert inside.wait(30)
            leave.set()
            ended.result(30)
            assert len(pids(settings)) == 1
    assert status(settings)["supervisor"] is None


def test_a_killed_run_leaves_no_workers(settings: Settings) -> None:
    """The kernel drops a killed run's share of the lock; the supervisor sees it and ends."""
    layout = Layout.of(settings)
    run = subprocess.Popen(stand_in.command("use"), env=spawn.environment(settings))
    until_sync(lambda: len(pids(settings)) == 1, within_s=30)
    run.kill()
    run.wait()
    until_sync(lambda: not held(layout.supervisor_lock), within_s=20)
    assert records.live_workers(layout) == []


def test_a_run_is_told_when_its_workers_are_gone(settings: Settings) -> None:
    with control.ensure(settings, [settings.home], ONE) as workers:
        control.down(settings)
        with pytest.raises(control.SupervisorFailed, match="same run id resumes"):
            workers.check()


def test_a_play_outside_the_workers_folders_is_refused(settings: Settings, tmp_path: Path) -> None:
    (settings.home / "plays").mkdir()
    control.up(settings, [settings.home / "plays"], ONE)
    other = tmp_path / "other"
    other.mkdir()
    with (
        pytest.raises(UsageError, match="rowmill up --plays"),
        control.ensure(settings, [other], ONE),
    ):
        pytest.fail("must not get here")


def test_workers_of_another_cluster_are_refused(settings: Settings) -> None:
    control.up(settings, [settings.home], ONE)
    other = settings.model_copy(update={"topic_prefix": "other."})
    with pytest.raises(UsageError, match="topic prefix"):
        control.up(other, [settings.home], ONE)


def test_files_are_for_their_owner_only(settings: Settings) -> None:
    control.up(settings, [settings.home], ONE)
    layout = Layout.of(settings)
    for path in (layout.supervisor_record, layout.worker_log("rows", 0), layout.store("rows", 0)):
        assert path.stat().st_mode & 0o077 == 0, path
