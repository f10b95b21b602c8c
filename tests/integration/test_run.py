"""`rowmill run` from input to sheet and file: real broker, real workers, a provider over HTTP."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rowmill.ops.supervisor import control, spawn
from rowmill.settings import Settings
from tests.kit.broker import SessionBroker, fresh_settings
from tests.kit.provider import RunningProvider
from tests.kit.until import until_sync

pytestmark = pytest.mark.broker

EXAMPLES = Path(__file__).parents[2] / "examples" / "sp500"
PLAY = str(EXAMPLES / "play.py")
COMPANIES = EXAMPLES / "sp500-constituents.csv"


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass
class Place:
    """A mill with its workers up, and a provider to ask."""

    settings: Settings
    provider: RunningProvider
    folder: Path

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rowmill", "run", PLAY, *arguments],
            env=spawn.environment(self.settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )

    def run(self, *arguments: str, url: str | None = None) -> Ended:
        param = f"base_url={url or self.provider.url}"
        process = self.command("--json", "--param", param, *arguments)
        out, err = process.communicate(timeout=240)
        return Ended(process.returncode, out, err)

    def receipts(self, *arguments: str) -> Ended:
        """Run `rowmill receipts ...`."""
        return self.rowmill("receipts", *arguments)

    def rowmill(self, *arguments: str) -> Ended:
        """Run another command."""
        done = subprocess.run(
            [sys.executable, "-m", "rowmill", *arguments],
            cwd=self.folder,
            env=spawn.environment(self.settings),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def companies(self, prefix: str, rows: int) -> str:
        """Write an input of companies that no other test asks about."""
        lines = "".join(f"{prefix}{number},Company {number}\n" for number in range(rows))
        return self.input(f"{prefix}.csv", f"Symbol,Security\n{lines}")

    def input(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name


@pytest.fixture(scope="module")
def workers(broker: SessionBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = fresh_settings(broker, tmp_path_factory.mktemp("mill") / "home")
    with control.ensure(settings, [EXAMPLES]):
        yield settings


@pytest.fixture
def place(workers: Settings, tmp_path: Path) -> Iterator[Place]:
    # Receipts outlive a test (R1: a provider is its host): each test asks about symbols of its own.
    with RunningProvider.start(latency_ms=20) as provider:
        settings = workers.model_copy(update={"sheet": f"sqlite:///{tmp_path}/sheet.sqlite"})
        yield Place(settings, provider, tmp_path)


def cells(path: Path) -> list[list[str]]:
    csv.field_size_limit(1 << 24)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.behaviour("R2")
def test_503_companies_are_enriched_once_and_never_paid_for_again(place: Place) -> None:
    first = place.run("--input", str(COMPANIES), "--out", "out.csv", "--run-id", "demo")
    assert first.code == 0, first.err
    report = first.report
    assert (report["total"], report["completed"], report["calls"]) == (503, 503, 1_006)
    assert place.provider.calls == 1_006
    given, written = cells(COMPANIES), cells(place.folder / "out.csv")
    assert [line[: len(given[0])] for line in written] == given
    assert all(all(line) for line in written[1:] for line in [line[len(given[0]) :]])

    resumed = place.run("--input", str(COMPANIES), "--out", "again.csv", "--run-id", "demo")
    assert resumed.code == 0, resumed.err
    assert (resumed.report["completed"], resumed.report["life"]["calls"]) == (503, 0)
    assert cells(place.folder / "again.csv") == written

    renewed = place.run("--input", str(COMPANIES))
    assert renewed.code == 0, renewed.err
    assert (renewed.report["completed"], renewed.report["reused"]) == (503, 503)
    assert (renewed.report["calls"], renewed.report["calls_reused"]) == (0, 1_006)
    assert place.provider.calls == 1_006

    late = place.run("--input", str(COMPANIES), "--out", "late.csv", "--run-id", "demo")
    assert late.code == 3
    assert "late.csv was not written: a later run wrote 503 rows of run demo again" in late.err
    assert not (place.folder / "late.csv").exists()


@pytest.mark.behaviour("I3")
def test_every_input_line_is_accounted_for(place: Place) -> None:
    text = (
        "Symbol,Security\n"
        "ONE,first\n"
        "TWO,second\n"
        "ONE,again\n"
        ",no key\n"
        "SIX,too,many\n"
        f"BIG,{'x' * 1_000_000}\n"
        ",\n"
    )
    ended = place.run("--input", place.input("odd.csv", text), "--out", "out.csv")
    assert ended.code == 1, ended.err
    report = ended.report
    assert {
        name: report[name]
        for name in ("total", "completed", "failed", "skipped", "duplicates", "pending", "calls")
    } == {
        "total": 7, "completed": 2, "failed": 3, "skipped": 1, "duplicates": 1, "pending": 0,
        "calls": 4,
    }  # fmt: skip
    reasons = " ".join(failure["error"] for failure in report["failures"])
    assert '"Symbol" is empty' in reasons
    assert "line 6: 3 cells, 2 headers" in reasons
    assert "the limit is 921,600" in reasons
    lines = cells(place.folder / "out.csv")
    assert len(lines) == 8
    assert lines[3][2:] == lines[1][2:]
    assert lines[5][:3] == ["SIX", "too", "many"]


def test_a_provider_that_is_down_fails_its_rows_as_unreachable(place: Place) -> None:
    table = place.companies("DOWN", 3)
    ended = place.run("--input", table, url="http://127.0.0.1:1")
    assert ended.code == 1, ended.err
    assert (ended.report["failed"], ended.report["calls"]) == (3, 0)
    assert "unreachable" in ended.report["failures"][0]["error"]


@pytest.mark.behaviour("R2")
def test_failed_rows_run_again_under_their_run_id_and_force_asks_everything_once(
    place: Place,
) -> None:
    table = place.companies("RETRY", 5)
    down = place.run("--input", table, "--run-id", "retried", url="http://127.0.0.1:1")
    assert (down.code, down.report["failed"]) == (1, 5)
    told = place.run("--input", table, "--run-id", "retried")
    assert "has finished before" in told.err
    assert (told.report["failed"], place.provider.calls) == (5, 0)

    again = place.run("--input", table, "--run-id", "retried", "--retry-failed")
    assert again.code == 0, again.err
    report = again.report
    assert (report["completed"], report["failed"], report["calls"]) == (5, 0, 10)
    assert report["life"] == {"number": 2, "calls": 10, "rows": 5}

    nothing_left = place.run("--input", table, "--run-id", "retried", "--retry-failed")
    assert (nothing_left.code, place.provider.calls) == (0, 10)
    refused = place.run("--input", table, "--run-id", "retried", "--force")
    assert refused.code == 2
    assert "a finished row never changes in its run" in refused.err

    forced = place.run("--input", table, "--force", "--run-id", "forced")
    assert (forced.code, forced.report["calls"], place.provider.calls) == (0, 10, 20)
    place.run("--input", table, "--force", "--run-id", "other")
    assert place.provider.calls == 30, "another run asks again"
    assert place.provider.repeated_keys() == {}, "each force is a purchase of its own"
    reused = place.run("--input", table)
    assert (reused.report["calls"], place.provider.calls) == (0, 30)


def test_a_plan_says_what_a_run_will_ask_and_asks_nothing(place: Place) -> None:
    table = place.companies("PLAN", 3)

    def asked() -> list[tuple[int, int, int]]:
        param = f"base_url={place.provider.url}"
        told = place.rowmill("plan", PLAY, "--input", table, "--param", param, "--json").out
        plan = json.loads(told)
        return [(one["known"], one["answered"], one["following_max"]) for one in plan["tools"]]

    before = place.provider.calls
    assert asked() == [(3, 0, 0), (0, 0, 3)]
    assert place.provider.calls == before
    place.run("--input", table)
    assert asked() == [(0, 3, 0), (0, 3, 0)]
    assert place.provider.calls == before + 6


@pytest.mark.behaviour("R7")
def test_receipts_are_listed_shown_and_forgotten(place: Place) -> None:
    table = place.companies("FORGET", 3)
    place.run("--input", table, "--run-id", "forgets")
    listed = json.loads(place.receipts("list", "--state", "completed", "--json").out)
    assert len(listed) >= 6
    key = next(look["key"] for look in listed[:6] if look["tool"] == "practice.profile")
    shown = json.loads(place.receipts("show", key, "--json").out)
    assert (shown["state"], shown["asker"]["run"], shown["sends"]) == ("completed", "forgets", 1)
    assert "practice.profile" in place.receipts("show", key).out

    gone = place.receipts("forget", key, "no-such-key")
    assert gone.code == 1
    assert gone.out == f"{key}  forgotten\nno-such-key  there is no such receipt\n"
    assert place.receipts("show", key).code == 2
    again = place.run("--input", table)
    assert (again.report["calls"], again.report["calls_reused"]) == (1, 5)


@pytest.mark.behaviour("D3")
def test_fail_stops_admission_and_leaves_the_rest_pending(place: Place) -> None:
    rows = "".join(f"F{number},row\n" for number in range(500))
    table = place.input("fail.csv", f"Symbol,Security\n,no key\n{rows}")
    ended = place.run(
        "--input", table, "--on-row-error", "fail", "--concurrency", "4", "--run-id", "strict"
    )
    assert ended.code == 1, ended.err
    report = ended.report
    assert report["state"] == "stopped"
    assert report["failed"] == 1
    assert report["pending"] > 0
    assert report["completed"] + report["failed"] + report["pending"] == 501
    # What failed before does not stop the run again: it goes on to the end.
    resumed = place.run("--input", table, "--on-row-error", "fail", "--run-id", "strict")
    assert resumed.code == 1, resumed.err
    assert (resumed.report["completed"], resumed.report["pending"]) == (500, 0)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_pauses_and_the_printed_command_resumes_without_paying_again(
    place: Place, how: signal.Signals
) -> None:
    table = place.companies(how.name, 300)
    url = f"base_url={place.provider.url}"
    options = ["--json", "--param", url, "--input", table, "--run-id", how.name]
    process = place.command(*options, "--concurrency", "5")
    until_sync(lambda: place.provider.calls > 60, within_s=120)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    paused = json.loads(out)
    assert paused["state"] == "paused"
    assert paused["pending"] > 0
    assert f"--run-id {how.name}" in err
    resumed = place.run("--input", table, "--run-id", how.name)
    assert resumed.code == 0, resumed.err
    assert (resumed.report["completed"], resumed.report["life"]["number"]) == (300, 2)
    assert place.provider.calls == 600
    assert place.provider.repeated_keys() == {}


def test_kill_9_of_a_run_is_followed_at_once_and_its_rows_end_once(place: Place) -> None:
    table = place.companies("KILL", 300)
    url = f"base_url={place.provider.url}"
    options = ["--json", "--param", url, "--input", table, "--run-id", "killed"]
    process = place.command(*options, "--concurrency", "5")
    until_sync(lambda: place.provider.calls > 60, within_s=120)
    process.kill()
    process.communicate(timeout=10)
    resumed = place.run("--input", table, "--run-id", "killed")
    assert resumed.code == 0, resumed.err
    assert "watching" not in resumed.err
    assert (resumed.report["completed"], resumed.report["life"]["number"]) == (300, 2)
    assert place.provider.repeated_keys() == {}


def test_json_stands_alone_on_standard_output(place: Place) -> None:
    ended = place.run("--input", place.companies("JSON", 9), "--limit", "2")
    assert ended.report["total"] == 2
    assert ended.out.count("\n") == 1
    assert ended.report["schema"] == 1
    assert "run " in ended.err
