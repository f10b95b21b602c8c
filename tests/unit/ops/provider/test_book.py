"""The practice provider's book."""

from __future__ import annotations

import pytest

from rowmill.ops.provider import book as book_module
from rowmill.ops.provider.book import Book, KeyCounts, Questions, Windows


def test_keys_are_counted_one_by_one() -> None:
    counts = KeyCounts()
    for key in ("a", "b", "a", "c", "a"):
        counts.add(key)
    assert [counts.of(key) for key in ("a", "b", "c", "d")] == [3, 1, 1, 0]
    assert counts.repeated == {"a": 3}
    assert len(counts) == 3


def test_keys_beyond_the_bound_are_counted_but_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "KEYS_MAX", 2)
    counts = KeyCounts()
    for key in ("a", "b", "c", "d", "a"):
        counts.add(key)
    assert (len(counts), counts.untracked, counts.of("a")) == (2, 2, 2)


def test_a_credit_is_booked_once_for_a_key() -> None:
    book = Book()
    for key in ("k", "k", "", ""):
        book.arrive("/company", key)
        book.book(key)
        book.leave(200)
    stats = book.stats()
    assert (stats["calls"], stats["booked"], stats["keys_booked_again"]) == (4, 3, 1)
    assert book.stats_of("k") == {"key": "k", "arrived": 2, "answered": 2}


def test_questions_asked_again_are_told_apart_by_the_mark() -> None:
    questions = Questions()
    questions.answer(questions.ask("/company", b"answered"))
    open_one = questions.ask("/company", b"open at the mark")
    questions.ask("/company", b"answered")
    assert (questions.repeated, questions.repeated_answered) == (1, 0)
    questions.mark()
    questions.answer(open_one)
    for content in (b"answered", b"open at the mark", b"new"):
        questions.ask("/company", content)
    assert (questions.repeated, questions.repeated_answered) == (3, 1)
    questions.ask("/domain", b"answered")
    assert questions.repeated == 3


def test_the_window_slides() -> None:
    """Two at the end of one second and two at the start of the next are four within one second."""
    window = Windows([(2, 1)])
    assert [window.wait_s(now) for now in (0.8, 0.9)] == [0, 0]
    assert window.wait_s(1.1) == pytest.approx(0.7)
    assert window.wait_s(1.8) == 0
    assert window.wait_s(1.85) == pytest.approx(0.05)


def test_all_windows_hold_together_and_a_refused_request_counts_in_none() -> None:
    windows = Windows([(2, 1), (3, 60)])
    assert [windows.wait_s(now) for now in (0, 0.1)] == [0, 0]
    assert windows.wait_s(0.2) == pytest.approx(0.8)
    assert windows.wait_s(1.0) == 0
    assert windows.wait_s(5.0) == pytest.approx(55)
    assert Windows([]).wait_s(0) == 0


def test_a_span_is_from_the_first_admitted_request_to_the_last() -> None:
    book = Book()
    assert book.stats()["span_s"] == 0
    for now_s in (100.0, 101.5, 109.25):
        book.admit(now_s)
    assert book.stats()["span_s"] == 9.25
