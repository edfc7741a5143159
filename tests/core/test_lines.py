"""Lines out of pieces of bytes."""

from __future__ import annotations

from hypothesis import given, strategies as st

from lmos_actors._core import LineReader

PIECES = st.lists(st.text("ab\n", max_size=8).map(str.encode), max_size=12)


@given(PIECES)
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    reader = LineReader(1_000)
    found = [line for piece in pieces for line in reader.feed(piece)]
    assert [*found, reader.rest()] == b"".join(pieces).split(b"\n")


@given(PIECES, st.integers(0, 6))
def test_nothing_is_read_behind_a_line_that_is_too_long(pieces: list[bytes], longest: int) -> None:
    reader = LineReader(longest)
    lines = b"".join(pieces).split(b"\n")
    wanted = next((n for n, line in enumerate(lines) if len(line) > longest), None)
    found: list[bytes] = []
    for piece in pieces:
        if not reader.is_beyond:
            found += reader.feed(piece)
            assert reader.waiting <= longest
    assert reader.is_beyond == (wanted is not None)
    assert found == lines[: len(lines) - 1 if wanted is None else wanted]
