"""How a play says that a tool asks many questions in one request (Q2)."""

from __future__ import annotations

from pydantic import ValidationError

from rowmill.plays.sites import first_problem, here
from rowmill.plays.specs import BatchSpec


def batch(
    *,
    post: str,
    size: int,
    members: str,
    match: str | None = None,
    echo: str | None = None,
    by_place: bool = False,
    answers: str | None = None,
    answer: str | None = None,
    error: str | None = None,
    status: str | None = None,
    retry_after: str | None = None,
    linger_ms: int = 20,
) -> BatchSpec:
    """Return a tool's batch operation: `Tool(..., batch=batch(...))`.

    >>> batch(post="/company/batch", size=50, members="symbols", match="symbol").size
    50

    Each question keeps its own receipt: an answer that is missing, or refused, is that question's alone.
    A question without an answer is asked again alone, by the tool's own operation.

    Args:
        post: the path, put after the provider's base URL.
        size: most members of a request, 1 to 1,000.
        members: field of the request's body that holds the list of members. A member is written as
            the value of `match` where that is all its question holds, else as the whole question.
        match: field of a question that its answer repeats. Where the answers are an object instead
            of a list, its names are matched.
        echo: field of a member in which it gets a key that its answer repeats.
        by_place: the nth answer is the nth member's: only where the provider promises that.
        answers: field of the response that holds the answers; unset: the response is a list, or has
            one list.
        answer: field of an answer that is the member's; unset: all of it.
        error: field in which an answer says why there is none.
        status: field in which an answer has a status of its own, as of HTTP: with 429, 408, 425 or 5xx
            it goes into a later batch, any other above 299 refuses it.
        retry_after: field with the seconds after which it may; unset: one second.
        linger_ms: how long a member waits for the next one; while others keep coming, or a request
            is under way, ten times that at most.

    Raises: PlayError naming file, line and field.
    """
    site = here()
    try:
        return BatchSpec(
            path=post,
            size=size,
            members=members,
            match=match,
            echo=echo,
            by_place=by_place,
            answers=answers,
            answer=answer,
            error=error,
            status=status,
            retry_after=retry_after,
            linger_ms=linger_ms,
        )
    except ValidationError as problem:
        site.refuse(f"batch(): {first_problem(problem)}")
