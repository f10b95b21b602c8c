"""A lock proves that its holder lives."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from rowmill.ops.supervisor.locks import FileLock, held


def test_one_holds_it_or_many_share_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    one, other = FileLock(path), FileLock(path)
    assert one.acquire()
    assert not other.acquire(within_s=0)
    assert not other.acquire(shared=True, within_s=0)
    one.release()
    assert one.acquire(shared=True)
    assert other.acquire(shared=True)
    one.release()
    assert not one.acquire(within_s=0)
    other.release()


def test_it_is_held_only_while_its_holder_lives(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not held(path)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        lock = FileLock(path)
        lock.acquire()
        os.write(tell, b"!")
        signal.pause()
    assert os.read(ready, 1) == b"!"
    assert held(path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not held(path)
    os.close(ready)
    os.close(tell)
