"""Chunks of frames against the same bytes cut one frame after another."""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from tallystick.codec.checksum import crc32c
from tallystick.codec.chunks import count_good_chunks, cut_chunks

FRAMES = st.lists(st.binary(min_size=1, max_size=30), max_size=30)


@given(FRAMES, st.integers(1, 80), st.sets(st.integers(0, 30)))
def test_a_chunk_ends_with_the_frame_that_makes_it_long_enough(
    frames: list[bytes], chunk_bytes: int, cuts: set[int]
) -> None:
    """Also where its frames come in several calls."""
    expected, begun = list[bytes](), b""
    for frame in frames:
        begun += frame
        if len(begun) >= chunk_bytes:
            expected, begun = [*expected, begun], b""
    ends, checksums, done, rest, crc = list[int](), list[int](), 0, 0, 0
    for low, high in pairwise((0, *sorted(cut for cut in cuts if 0 < cut < len(frames)), len(frames))):
        part = b"".join(frames[low:high])
        starts = array("Q", list(accumulate(map(len, frames[low:high]), initial=0))[:-1])
        new_ends, new_checksums, crc = cut_chunks(part, starts, chunk_bytes, rest, crc)
        ends += [done + end for end in new_ends]
        checksums += new_checksums
        done += len(part)
        rest = done - ends[-1] if ends else done
    assert ends == list(accumulate(map(len, expected)))
    assert checksums == list(map(crc32c, expected))
    assert (rest, crc) == (len(begun), crc32c(begun))


@given(
    st.lists(st.binary(max_size=30), max_size=9),
    st.integers(0, 1 << 40),
    st.sets(st.integers(0, 8)),
    st.integers(0, 90),
)
def test_chunks_are_good_up_to_the_first_that_is_damaged_or_cut_short(
    chunks: list[bytes], first: int, damaged: set[int], lost_bytes: int
) -> None:
    data = b"".join(chunks)
    data = data[: max(0, len(data) - lost_bytes)]
    bounds = array("Q", accumulate(map(len, chunks), initial=first))
    checksums = array("I", [crc32c(chunk) ^ (at in damaged) for at, chunk in enumerate(chunks)])
    good = [at not in damaged and bounds[at + 1] - first <= len(data) for at in range(len(chunks))]
    assert count_good_chunks(data, bounds, checksums) == [*good, False].index(False)
    assert count_good_chunks(data + b"more", bounds, checksums) >= [*good, False].index(False)
