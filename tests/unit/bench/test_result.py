"""The JSON line: the fields that a comparison reads, and what they add up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.provider import ProviderCounts, command, echoed, exact
from bench.result import Kill, Measured
from bench.run import arguments
from rowmill.ops.provider import answers

RUN = Measured(
    rows=2_000,
    rows_seen=2_000,
    rows_lost=0,
    wall_s=4.0,
    cpu_s={"rows": 1.0, "dispatch": 2.0, "sink": 0.5, "broker": 1.5, "submit": 0.2, "provider": 9},
    other_cpu_s=0.4,
    peak_kb=400 << 10,
    provider=ProviderCounts(calls=4_005, repeated=5, repeated_answered=2, in_flight_max=199),
    load1_before=0.1,
    concurrency=200,
    workers=3,
)


def test_the_line_has_every_field_that_a_comparison_reads() -> None:
    line = RUN.to_json()
    assert line.keys() == {
        "peer", "rows", "wall_s", "rows_per_s", "cpu_s_per_1000_rows", "peak_rss_mb", "calls",
        "repeated_calls", "lost_rows", "cpu_by_role_s", "cpu_ms_per_row_by_role", "provider_cpu_s",
        "provider_max_in_flight", "load_other_cpu_s", "load1_before", "concurrency", "workers",
    }  # fmt: skip
    assert (line["peer"], line["rows_per_s"], line["peak_rss_mb"]) == ("rowmill", 500.0, 400)


def test_the_provider_is_not_in_the_cpu_per_row() -> None:
    line = RUN.to_json()
    assert line["cpu_s_per_1000_rows"] == 2.6
    assert line["provider_cpu_s"] == 9
    assert line["cpu_ms_per_row_by_role"] == {
        "rows": 0.5, "dispatch": 1.0, "sink": 0.25, "broker": 0.75, "submit": 0.1, "supervisor": 0.0
    }  # fmt: skip
    assert sum(line["cpu_by_role_s"].values()) == pytest.approx(5.2)


def test_a_kill_says_when_it_came_and_what_was_paid_again() -> None:
    line = replace(RUN, kill_asked=True, kill=Kill(rows=1_010, progress_s=1.4)).to_json()
    assert line["kill"] == {
        "at_rows": 1_010, "progress_s": 1.4, "repeated_answered": 2, "repeated_in_flight": 3
    }  # fmt: skip


def test_a_kill_that_never_came_is_not_taken_for_a_quiet_run() -> None:
    assert replace(RUN, kill_asked=True).to_json()["kill"] == "never reached"


def test_a_run_that_did_not_end_says_so() -> None:
    line = replace(RUN, rows_seen=500).to_json()
    assert line["timed_out"] is True
    assert line["rows_per_s"] == 125.0


def test_both_providers_count_alike() -> None:
    expected = ProviderCounts(calls=10, repeated=3, repeated_answered=1, in_flight_max=7)
    foreign = {"calls": 10, "repeated": 3, "repeated_answered": 1, "max_in_flight": 7}
    ours = {
        "calls": 10, "repeated": {"key": 2}, "questions_repeated": 3,
        "questions_repeated_answered": 1, "in_flight_max": 7,
    }  # fmt: skip
    assert ProviderCounts.of(foreign) == ProviderCounts.of(ours) == expected


def test_the_practice_provider_must_have_answered_exactly() -> None:
    company = answers.company("SYM1")
    domain = answers.domain(company["name"])
    assert exact("SYM1", company, domain)
    assert not exact("SYM1", {**company, "city": "Atlantis"}, domain)
    assert not exact("SYM2", company, domain)
    assert not exact("SYM1", company, None)


def test_another_provider_must_have_answered_for_this_row() -> None:
    company = {"symbol": "SYM1", "name": "Company SYM1"}
    domain = {"company": "Company SYM1", "domain": "company-sym1.example"}
    assert echoed("SYM1", company, domain)
    assert not echoed("SYM2", company, domain)
    assert not echoed("SYM1", company, {**domain, "company": "Company SYM2"})
    assert not echoed("SYM1", None, domain)
    assert not echoed("SYM1", {"symbol": "SYM1"}, domain)


def test_another_provider_is_a_command_with_its_port_and_delay() -> None:
    assert command("/x/mock -addr 127.0.0.1:{port} -delay {delay_ms}ms", 81, 50) == [
        "/x/mock", "-addr", "127.0.0.1:81", "-delay", "50ms"
    ]  # fmt: skip
    assert command("", 81, 50)[-4:] == ["--port", "81", "--latency-ms", "50"]


@pytest.mark.parametrize(
    "argv", [["--rows", "0"], ["--kill-at", "1"], ["--kill-at", "-0.1"], ["--concurrency", "0"]]
)
def test_arguments_that_cannot_be_measured_are_refused(argv: list[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(argv)
