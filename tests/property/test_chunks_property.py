"""Whatever comes in which order: each row is in exactly one chunk, and spans join (INV22)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowmill.streams.core.chunks import Chunk, ChunkBuilder

PARTITIONS = (0, 1, 2)

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("record"),
            st.sampled_from(PARTITIONS),
            st.integers(1, 4),  # distance to the offset before: logs have holes
            st.integers(1, 60),  # bytes
            st.booleans(),  # of this sheet?
        ),
        st.tuples(st.just("take")),
    ),
    max_size=120,
)


@given(
    steps=steps,
    starts=st.lists(st.none() | st.integers(0, 30), min_size=3, max_size=3),
    rows_max=st.integers(1, 7),
    bytes_max=st.integers(1, 150),
)
def test_every_row_is_in_exactly_one_chunk_and_spans_join(
    steps: list[tuple[object, ...]], starts: list[int | None], rows_max: int, bytes_max: int
) -> None:
    builder = ChunkBuilder[str](rows_max=rows_max, bytes_max=bytes_max, linger_ms=250)
    head = dict(zip(PARTITIONS, (start or 0 for start in starts), strict=True))
    for number, start in zip(PARTITIONS, starts, strict=True):
        builder.begin(number, start)
    offered: list[tuple[int, int]] = []
    taken: list[Chunk[str]] = []

    def take() -> None:
        chunk = builder.take()
        if chunk is not None:
            taken.append(chunk)

    for step in steps:
        if step[0] == "take":
            take()
            continue
        _, partition, distance, size, ours = step
        assert isinstance(partition, int)
        assert isinstance(distance, int)
        assert isinstance(size, int)
        offset = head[partition] + distance - 1
        head[partition] = offset + 1
        if ours:
            assert builder.offer(partition, offset, f"{partition}/{offset}", size, now_ms=0)
            offered.append((partition, offset))
        else:
            builder.passed(partition, offset + 1, now_ms=0)
    while builder.due_ms(passed_linger_ms=1) is not None:
        take()

    written: list[tuple[int, int]] = []
    expected = dict(zip(PARTITIONS, starts, strict=True))
    for chunk in taken:
        assert chunk.row_count <= rows_max
        assert len({span.partition for span in chunk.spans}) == len(chunk.spans)
        for span in chunk.spans:
            assert span.start == expected[span.partition]
            assert span.end > (span.start or 0)
            assert list(span.offsets) == sorted(set(span.offsets))
            assert all((span.start or 0) <= offset < span.end for offset in span.offsets)
            assert span.rows == tuple(f"{span.partition}/{offset}" for offset in span.offsets)
            expected[span.partition] = span.end
            written += [(span.partition, offset) for offset in span.offsets]
    assert sorted(written) == sorted(offered)
    assert len(set(written)) == len(written)
    assert {p: expected[p] or 0 for p in PARTITIONS} == head
