"""When a dead worker is started again."""

from __future__ import annotations

from rowmill.ops.supervisor.restarts import DEATHS_MAX, DELAYS_S, STEADY_S, WINDOW_S, Restarts


def test_the_first_restart_is_immediate() -> None:
    assert Restarts(patient=False).died(100.0, lived_s=1, ready=True) == 0


def test_restarts_in_a_row_wait_longer_up_to_a_bound() -> None:
    restarts = Restarts(patient=True)
    waits = [restarts.died(at, lived_s=1, ready=True) for at in range(20)]
    assert waits[: len(DELAYS_S)] == list(DELAYS_S)
    assert set(waits[len(DELAYS_S) :]) == {DELAYS_S[-1]}


def test_a_steady_life_earns_an_immediate_restart() -> None:
    restarts = Restarts(patient=False)
    for at in range(3):
        restarts.died(at, lived_s=1, ready=True)
    assert restarts.died(100, lived_s=STEADY_S, ready=True) == 0


def test_a_worker_that_never_becomes_ready_is_given_up() -> None:
    restarts = Restarts(patient=True)
    waits = [restarts.died(at, lived_s=1, ready=False) for at in range(DEATHS_MAX)]
    assert waits[-1] is None
    assert None not in waits[:-1]
    assert restarts.deaths == DEATHS_MAX


def test_deaths_far_apart_are_not_added_up() -> None:
    restarts = Restarts(patient=False)
    for turn in range(3 * DEATHS_MAX):
        assert restarts.died(turn * WINDOW_S, lived_s=WINDOW_S, ready=False) is not None


def test_under_up_a_worker_that_once_worked_is_never_given_up() -> None:
    patient, hasty = Restarts(patient=True), Restarts(patient=False)
    for restarts in (patient, hasty):
        restarts.died(0, lived_s=100, ready=True)
    waits = [
        (patient.died(at, lived_s=1, ready=False), hasty.died(at, lived_s=1, ready=False))
        for at in range(1, 1 + DEATHS_MAX)
    ]
    assert waits[-1] == (DELAYS_S[DEATHS_MAX], None)
