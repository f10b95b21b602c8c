"""CPU and memory of process trees, from made-up tables of processes and from real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import TICKS_PER_S, Meter, Sampling, Times, machine_busy_s, memory_kb, parse_stat
from tests.kit.until import until_sync

SUPERVISOR, WORKER, BROKER, STRANGER = 100, 101, 200, 300
ROOTS = {SUPERVISOR: "supervisor", BROKER: "broker"}


def meter() -> Meter:
    return Meter(ROOTS, {WORKER: "rows"}.get, memory=lambda pid: (0, 0))


def seconds(ticks: int) -> float:
    return ticks / TICKS_PER_S


def test_a_command_with_spaces_and_brackets_does_not_shift_the_fields() -> None:
    line = "42 (a) b (c)) S 7 42 42 0 -1 0 0 0 0 0 11 22 33 44 20 0 1 0 555 0 0"
    assert parse_stat(line) == Times(parent=7, started=555, own=33, reaped=77)


def test_only_what_was_spent_since_the_first_sample_counts() -> None:
    one = meter()
    one.take({SUPERVISOR: Times(1, 5, 50, 0), BROKER: Times(1, 6, 1_000, 0)})
    one.take({SUPERVISOR: Times(1, 5, 53, 0), BROKER: Times(1, 6, 1_200, 0)})
    assert one.cpu_s() == {"supervisor": seconds(3), "broker": seconds(200)}


def test_a_stranger_does_not_count() -> None:
    one = meter()
    one.take({SUPERVISOR: Times(1, 5, 0, 0), STRANGER: Times(1, 7, 0, 0)})
    one.take({SUPERVISOR: Times(1, 5, 0, 0), STRANGER: Times(1, 7, 900, 0)})
    assert sum(one.cpu_s().values()) == 0


def test_a_process_and_its_children_have_its_role() -> None:
    one = meter()
    one.take({SUPERVISOR: Times(1, 5, 0, 0)})
    one.take(
        {
            SUPERVISOR: Times(1, 5, 1, 0),
            WORKER: Times(SUPERVISOR, 8, 10, 0),
            150: Times(WORKER, 9, 20, 0),
        }
    )
    assert one.cpu_s()["rows"] == seconds(30)


def test_a_dead_child_is_not_lost_and_not_counted_twice() -> None:
    """It had 60 ticks when the meter began, 90 when last seen, and died at 97: 37 are ours."""
    one = meter()
    one.take({SUPERVISOR: Times(1, 5, 0, 400), WORKER: Times(SUPERVISOR, 8, 60, 0)})
    one.take({SUPERVISOR: Times(1, 5, 0, 400), WORKER: Times(SUPERVISOR, 8, 90, 0)})
    one.take({SUPERVISOR: Times(1, 5, 0, 497)})
    assert one.cpu_s() == {"supervisor": seconds(7), "broker": 0, "rows": seconds(30)}


def test_a_child_that_nobody_saw_counts_with_its_parent() -> None:
    one = meter()
    one.take({BROKER: Times(1, 6, 0, 0)})
    one.take({BROKER: Times(1, 6, 0, 25)})
    assert one.cpu_s()["broker"] == seconds(25)


def test_a_pid_given_to_another_process_begins_anew() -> None:
    one = meter()
    one.take({SUPERVISOR: Times(1, 5, 0, 0), WORKER: Times(SUPERVISOR, 8, 500, 0)})
    one.take({SUPERVISOR: Times(1, 5, 0, 500), WORKER: Times(SUPERVISOR, 77, 4, 0)})
    assert one.cpu_s()["rows"] == seconds(4)


def test_a_role_is_what_the_last_look_says() -> None:
    """A child just forked still has its parent's command line."""
    names: dict[int, str | None] = {WORKER: None}
    one = Meter(ROOTS, names.get, memory=lambda pid: (0, 0))
    one.take({SUPERVISOR: Times(1, 5, 0, 0)})
    one.take({SUPERVISOR: Times(1, 5, 0, 0), WORKER: Times(SUPERVISOR, 8, 2, 0)})
    names[WORKER] = "sink"
    one.take({SUPERVISOR: Times(1, 5, 0, 0), WORKER: Times(SUPERVISOR, 8, 6, 0)})
    assert one.cpu_s()["sink"] == seconds(6)


def test_a_zombie_keeps_the_role_that_it_had() -> None:
    """Its command line is gone before its parent has waited for it."""
    names: dict[int, str | None] = {WORKER: "rows"}
    one = Meter(ROOTS, names.get, memory=lambda pid: (0, 0))
    one.take({SUPERVISOR: Times(1, 5, 0, 0), WORKER: Times(SUPERVISOR, 8, 0, 0)})
    del names[WORKER]
    one.take({SUPERVISOR: Times(1, 5, 0, 0), WORKER: Times(SUPERVISOR, 8, 9, 0)})
    one.take({SUPERVISOR: Times(1, 5, 0, 9)})
    assert one.cpu_s() == {"supervisor": 0, "broker": 0, "rows": seconds(9)}


def test_the_highest_memory_is_kept_and_a_shared_segment_counts_once() -> None:
    sizes = {SUPERVISOR: (10, 4), BROKER: (100, 7), WORKER: (1_000, 0)}
    one = Meter(
        {**ROOTS, WORKER: "provider"}, memory=sizes.__getitem__, unweighed=frozenset({"provider"})
    )
    both = {SUPERVISOR: Times(1, 5, 0, 0), BROKER: Times(1, 6, 0, 0), WORKER: Times(1, 8, 0, 0)}
    one.take(both)
    one.take({BROKER: Times(1, 6, 0, 0)})
    assert one.peak_kb == 10 + 100 + 7


def test_memory_is_read_as_the_kernel_tells_it(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(
        "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 500 kB\nRssFile:\t 300 kB\nRssShmem:\t 100 kB\n"
    )
    assert memory_kb(7, tmp_path) == (800, 100)
    assert memory_kb(8, tmp_path) == (0, 0)


def test_the_machine_is_busy_with_all_but_waiting(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 2 3 1000 1000 4 5 6 0 0\n")
    assert machine_busy_s(tmp_path) == seconds(21)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_real_child_that_dies_is_measured() -> None:
    """The child burns 0.3 s of CPU in a process of its own, which it waits for."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); input()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        sampling = Sampling(Meter({child.pid: "tree"}))

        def burnt() -> bool:
            sampling.now()
            return sampling.meter.cpu_s()["tree"] >= 0.3

        until_sync(burnt, within_s=30)
        cpu_s, other_s = sampling.end()
        assert 0.3 <= cpu_s["tree"] < 3
        assert other_s >= 0
        assert os.getpid() not in {pid for pid, _ in sampling.meter._seen}
    finally:
        child.kill()
        child.wait()
