"""Runs of equal frames against ``scan_adds``, the reference; lying heads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER, master_key
from tallystick.codec.frames import scan_adds
from tallystick.codec.uniform import scan_uniform_adds

KEYS = master_key(b"pw"), master_key(b"other")
LIMIT = 400


def frame(ledger: int, entry: int, size: int, key: bytes = KEYS[0], flags: int = 0) -> bytes:
    body = ENTRY_HEADER.pack(ledger, entry, -1, 0) + bytes(size)
    return v2.AddFrame(ledger, entry, key, body[:size], flags).encode()


@given(
    st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 1 << 62), st.integers(2, 40), st.integers(32, 350), st.data()
)
def test_equal_frames_are_read_as_the_reference_reads_them(
    ledger: int, first: int, count: int, size: int, data: st.DataObject
) -> None:
    before = data.draw(st.binary(max_size=30))
    stream = before + b"".join(frame(ledger, first + 3 * number, size) for number in range(count))
    end = data.draw(st.integers(len(before) + 2 * (28 + size), len(stream)))
    assert scan_uniform_adds(stream, len(before), end, LIMIT) == scan_adds(stream, len(before), end, LIMIT)


ODD = st.tuples(
    st.sampled_from([1, 2]),
    st.integers(-1, 9),
    st.sampled_from([20, 32, 60, 500]),
    st.sampled_from(KEYS),
    st.sampled_from([0, v2.RequestFlag.RECOVERY_ADD]),
)
OTHERS = st.sampled_from([v2.ReadFrame(1, 2).encode(), b"\0" * 88, b"\xff" * 88, b""])


@given(st.lists(ODD.map(lambda odd: frame(*odd)) | OTHERS, max_size=6), st.integers(0, 200))
def test_whatever_is_not_equal_is_left_to_the_reference(frames: list[bytes], cut: int) -> None:
    stream = b"".join(frames)
    end = max(0, len(stream) - cut)
    found = scan_uniform_adds(stream, 0, end, LIMIT)
    if found is not None:
        run, stop = found
        assert found == scan_adds(stream, 0, stop, LIMIT) and end - stop < run.bounds[1]


def test_a_shorter_frame_behind_equal_ones_is_left_for_the_next_look() -> None:
    equal, shorter = b"".join(frame(1, entry, 60) for entry in range(2)), frame(1, 2, 32)
    found = scan_uniform_adds(equal + shorter, 0, len(equal + shorter), LIMIT)
    assert found is not None and (found[0].entries, found[1]) == ([0, 1], len(equal))


def test_one_frame_that_differs_is_never_taken_for_an_equal_one() -> None:
    frames = [frame(1, entry, 60) for entry in range(9)]
    for place in range(9):
        for other in (
            frame(2, place, 60),
            frame(1, place, 60, KEYS[1]),
            frame(1, place, 60, flags=2),
            frame(1, place, 61),
        ):
            stream = b"".join([*frames[:place], other, *frames[place + 1 :]])
            assert scan_uniform_adds(stream, 0, len(stream), LIMIT) is None
