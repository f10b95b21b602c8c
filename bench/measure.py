"""CPU and memory of a set of process trees, read from /proc (Linux, proc(5)).

A process that died between two samples is not lost: the kernel adds its times to those of the
parent that waited for it (`cutime`, `cstime`). What was not seen of it before is counted there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SAMPLE_EVERY_S = 0.25

PROC = Path("/proc")

Label = Callable[[int], str | None]
"""Names the role of a process by its pid; None: the role of its parent."""


@dataclass(frozen=True, slots=True)
class Times:
    """One line of /proc/PID/stat. `started` tells two processes of one pid apart; all in ticks.

    `own`: user and system time of all its threads; `reaped`: the same of children waited for, and
    of theirs.
    """

    parent: int
    started: int
    own: int
    reaped: int


def parse_stat(line: str) -> Times:
    """Return the times in a line of /proc/PID/stat. The command in it may hold spaces and `)`."""
    fields = line[line.rindex(")") + 2 :].split()
    return Times(
        parent=int(fields[1]),
        started=int(fields[19]),
        own=int(fields[11]) + int(fields[12]),
        reaped=int(fields[13]) + int(fields[14]),
    )


def process_table(proc: Path = PROC) -> dict[int, Times]:
    """Return every process of the machine by pid."""
    table = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                table[int(name)] = parse_stat((proc / name / "stat").read_text())
            except OSError:
                continue  # it ended while we looked
    return table


def memory_kb(pid: int, proc: Path = PROC) -> tuple[int, int]:
    """Return resident memory of a process in KiB: private and file pages, and shared segments."""
    private = shared = 0
    try:
        text = (proc / str(pid) / "status").read_text()
    except OSError:
        return 0, 0
    for line in text.splitlines():
        if line.startswith(("RssAnon:", "RssFile:")):
            private += int(line.split()[1])
        elif line.startswith("RssShmem:"):
            shared = int(line.split()[1])
    return private, shared


def machine_busy_s(proc: Path = PROC) -> float:
    """Return the CPU seconds that the whole machine has spent on anything, all cores together."""
    with (proc / "stat").open() as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, file.readline().split()[1:9]
        )
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


@dataclass(slots=True)
class _Seen:
    """What is known of one process: its times when the meter began, and when last seen."""

    parent: tuple[int, int] | None
    role: str
    base_own: int
    base_reaped: int
    own: int
    reaped: int
    alive: bool = True


@dataclass(slots=True)
class Meter:
    """Adds up CPU by role and the highest memory. `roots`: pid -> role of each tree's first process.

    Feed it samples (`take`), or let `Sampling` do so. Everything is since the first sample.
    """

    roots: Mapping[int, str]
    label: Label = lambda pid: None
    memory: Callable[[int], tuple[int, int]] = memory_kb
    unweighed: frozenset[str] = frozenset()
    """Roles whose memory does not count."""
    peak_kb: int = 0
    _seen: dict[tuple[int, int], _Seen] = field(default_factory=dict)
    _labels: dict[tuple[int, int], str] = field(default_factory=dict)
    _begun: bool = False

    def take(self, table: Mapping[int, Times]) -> None:
        """Take in one sample of the machine's processes."""
        alive = set()
        private_kb = shared_kb = 0
        for pid, times in table.items():
            role = self._role(pid, table)
            if role is None:
                continue
            alive.add((pid, times.started))
            self._note(pid, times, role, table)
            if role not in self.unweighed:
                private, shared = self.memory(pid)
                private_kb += private
                shared_kb = max(shared_kb, shared)
        for key, seen in self._seen.items():
            seen.alive = key in alive
        self.peak_kb = max(self.peak_kb, private_kb + shared_kb)
        self._begun = True

    def cpu_s(self) -> dict[str, float]:
        """Return CPU seconds by role since the first sample, the dead included."""
        ticks: dict[str, int] = dict.fromkeys(self.roots.values(), 0)
        for key, seen in self._seen.items():
            grown = seen.own - seen.base_own + self._unseen(key, seen)
            ticks[seen.role] = ticks.get(seen.role, 0) + grown
        return {role: count / TICKS_PER_S for role, count in ticks.items()}

    def _role(self, pid: int, table: Mapping[int, Times]) -> str | None:
        """Return the role of a process of our trees, None for one of nobody's."""
        labelled: str | None = None
        while pid in table and pid > 1:
            if pid in self.roots:
                return labelled or self.roots[pid]
            labelled = labelled or self._label(pid, table[pid].started)
            pid = table[pid].parent
        return None

    def _label(self, pid: int, started: int) -> str | None:
        """Return the last label of a process: a zombie has no command line to tell it by."""
        label = self.label(pid) or self._labels.get((pid, started))
        if label is not None:
            self._labels[pid, started] = label
        return label

    def _note(self, pid: int, times: Times, role: str, table: Mapping[int, Times]) -> None:
        key = (pid, times.started)
        seen = self._seen.get(key)
        if seen is None:
            parent = table.get(times.parent)
            base = (0, 0) if self._begun else (times.own, times.reaped)
            self._seen[key] = _Seen(
                parent=(times.parent, parent.started) if parent else None,
                role=role,
                base_own=base[0],
                base_reaped=base[1],
                own=times.own,
                reaped=times.reaped,
            )
            return
        # A child just forked still has its parent's command line: the last look is the true one.
        seen.role, seen.own, seen.reaped = role, times.own, times.reaped

    def _unseen(self, key: tuple[int, int], seen: _Seen) -> int:
        """Return the ticks of children that died, after they were last seen or never seen."""
        dead = (
            child.own + child.reaped
            for child in self._seen.values()
            if child.parent == key and not child.alive
        )
        return max(0, seen.reaped - seen.base_reaped - sum(dead))


class Sampling:
    """Feeds a meter from a thread, and on demand. The first sample is taken at once."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._busy_s = machine_busy_s()
        self._own_s = sum(os.times()[:2])
        self.now()
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
        self._thread.start()

    def now(self) -> None:
        """Take a sample now: just before processes are killed, and at the end."""
        with self._lock:
            self.meter.take(process_table())

    def end(self) -> tuple[dict[str, float], float]:
        """Take the last sample. Returns CPU seconds by role, and of everything else on the machine.

        This process belongs to neither.
        """
        self.now()
        self._stop.set()
        self._thread.join()
        cpu_s = self.meter.cpu_s()
        ours_s = sum(os.times()[:2]) - self._own_s
        other_s = machine_busy_s() - self._busy_s - sum(cpu_s.values()) - ours_s
        return cpu_s, max(0.0, other_s)

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            self.now()
