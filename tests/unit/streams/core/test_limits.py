"""What a run may draw: to the call, and to the millionth."""

from __future__ import annotations

from rowmill.streams.core.limits import Drawn, Limits, draw_id, refusal


def test_a_thousand_prices_of_a_cent_are_ten_to_the_call() -> None:
    drawn, limits = Drawn(), Limits(budget=10)
    for _ in range(1_000):
        assert refusal(drawn, limits, 0.01) is None
        drawn = drawn.plus(0.01)
    assert drawn == Drawn(1_000, 10_000_000)
    assert refusal(drawn, limits, 0.01) == (
        "the budget of 10 does not reach for the next call: 10 drawn (--budget)"
    )
    assert refusal(drawn, limits, 0) is None, "what costs nothing is within any budget"


def test_whichever_limit_is_reached_first_holds() -> None:
    limits = Limits(max_calls=2, budget=100)
    assert limits.any
    assert not Limits().any
    assert Limits(max_calls=0).any
    assert refusal(Drawn(2, 0), limits, 1) == "the limit of 2 calls is reached (--max-calls)"
    assert refusal(Drawn(10**6, 10**12), Limits(), 5) is None


def test_a_draw_is_named_after_what_it_buys() -> None:
    assert draw_id("k", None) == draw_id("k", None)
    assert len({draw_id("k", None), draw_id("k", "p1"), draw_id("k2", None)}) == 3
