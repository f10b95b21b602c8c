"""What a user installs is whole: the wheel, by way of the source distribution too."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A checkout without symbolic links builds, without an error, a wheel that lacks these.
MODULES = (
    "rowmill.streams.rows.app",
    "rowmill.streams.dispatch.app",
    "rowmill.streams.sink.app",
    "rowmill.topics.catalogue",
    "rowmill.ops.supervisor.control",
    "rowmill.ops.kafka.embedded",
    "rowmill.cli.__main__",
)


def build(source: Path, into: Path, what: str) -> Path:
    """Build `wheel` or `sdist` with the backend that pyproject names, without fetching anything."""
    code = (
        f"from hatchling.build import build_{what} as build; print('built', build({str(into)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, check=True, capture_output=True, text=True
    )
    return into / done.stdout.split("built ")[-1].strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built from the source distribution, as an installer does where none is served."""
    folder = tmp_path_factory.mktemp("dist")
    archive = build(ROOT, folder, "sdist")
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True)
    return build(folder / archive.name.removesuffix(".tar.gz"), folder, "wheel")


def test_the_wheel_holds_every_module_that_the_clone_has(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    ours = {
        str(path.relative_to(ROOT))
        for folder in ("rowmill", "rowmill/streams", "rowmill/topics", "rowmill/ops")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert ours - inside == set()
    assert {"rowmill/py.typed", "rowmill/ops/kafka/jars.lock"} <= inside
    assert not {name for name in inside if not name.startswith(("rowmill/", "rowmill-"))}


def test_every_role_is_imported_from_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    # The dependencies of the environment that runs this test, but not its editable project:
    # a path added this way has its .pth files left alone.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = "import importlib, rowmill\n" + "".join(
        f"importlib.import_module({module!r})\n" for module in MODULES
    )
    done = subprocess.run(
        [str(python), "-P", "-c", code + "print(rowmill.__file__)"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(site)
