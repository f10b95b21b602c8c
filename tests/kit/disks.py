"""Disks that fail a process: one that is full, and one whose fsync fails or takes long."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int fails(void) {
    const char *delay_ms = getenv("SHIM_DELAY_MS"), *flag = getenv("SHIM_FLAG");
    if (flag == NULL || access(flag, F_OK) != 0) return 0;
    if (delay_ms != NULL) { usleep(1000 * atoi(delay_ms)); return 0; }
    errno = EIO;
    return 1;
}

int fsync(int descriptor) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return fails() ? -1 : real(descriptor);
}

int fdatasync(int descriptor) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return fails() ? -1 : real(descriptor);
}
"""


@contextlib.contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """Mount a disk of that size at `place`, made where it is missing. Skips where that is not allowed."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root that may mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Write to `path` until its disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def failing_fsync(folder: Path, *, delay_ms: int | None = None) -> tuple[dict[str, str], Path]:
    """Return an environment, and a flag: while that file exists, fsync fails there with EIO.

    `delay_ms`: it succeeds, but only after so long. Skips without a C compiler.
    """
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler (cc)")
    source, library, flag = folder / "shim.c", folder / "shim.so", folder / "fsync-fails"
    source.write_text(_SHIM)
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    env = {"LD_PRELOAD": str(library), "SHIM_FLAG": str(flag)}
    if delay_ms is not None:
        env["SHIM_DELAY_MS"] = str(delay_ms)
    return env, flag
