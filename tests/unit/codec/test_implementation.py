"""The compiled codec against the reference, on any bytes; and which of them is chosen."""

from __future__ import annotations

import gc
import random as chance
import struct
import subprocess
import sys
import tracemalloc
from array import array
from contextlib import nullcontext
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, mmap
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import codec_twins, message_twins, record_twins, request_twins, stored_twins, v3_twins
from support.codec_twins import COMPILED
from tallystick.codec import reads
from tallystick.codec.frames import ADD_PREFIX, PLAIN_ADD, AddFrames, AddRun
from tallystick.codec.implementation import REFERENCES, in_use, is_compiled, load
from tallystick.codec.pulled import PulledRun
from tallystick.codec.reads import EntryRun, EvenEntries, PackedEntries, SpreadEntries
from tallystick.codec.records import RecordRun, Stop
from tallystick.codec.v3_adds import V3AddRun
from tallystick.errors import UsageError
from tallystick.rocketmq.wire.headers import REQUESTS

COMPARISONS = {
    **codec_twins.COMPARISONS,
    **message_twins.COMPARISONS,
    **record_twins.COMPARISONS,
    **request_twins.COMPARISONS,
    **stored_twins.COMPARISONS,
    **v3_twins.COMPARISONS,
}
MODULE = "tallystick.codec._compiled"
SHARED = (
    *(AddRun, AddFrames, V3AddRun, EntryRun, EvenEntries, SpreadEntries, PackedEntries, RecordRun, PulledRun, *Stop),
    *(None, True, False, array, *REFERENCES.values(), *REQUESTS.languages.values(), *REQUESTS.headers.values()),
)
needs_compiled = pytest.mark.skipif(
    COMPILED is None, reason="there is no compiled codec here: no compiler when tallystick was installed"
)


def test_each_function_with_a_twin_is_compared() -> None:
    assert COMPARISONS.keys() == REFERENCES.keys()


@needs_compiled
@pytest.mark.parametrize("name", COMPARISONS)
@given(random=st.randoms(use_true_random=False))
def test_both_do_the_same_with_any_bytes(name: str, random: Random) -> None:
    COMPARISONS[name](random)


@needs_compiled
@pytest.mark.parametrize("name", COMPARISONS)
def test_both_do_the_same_in_thousands_of_rounds(name: str) -> None:
    """Some faults show in one round of hundreds, of which hypothesis makes one hundred."""
    seed = chance.randrange(1 << 32)
    print("seed", seed)
    random = Random(seed)
    for _ in range(2000):
        COMPARISONS[name](random)


@needs_compiled
def test_views_with_gaps_are_refused_by_both() -> None:
    response = reads.encode_reads(5, [1])[:4] + bytes(20)
    for name in ("scan_adds", "scan_acks", "scan_reads", "scan_read_requests"):
        view = memoryview(response * 20)[::2]
        limits = (0, len(view), 5)[: 2 if name == "scan_read_requests" else 3]
        for function in (REFERENCES[name], getattr(COMPILED, name)):
            with pytest.raises((BufferError, ValueError)):
                function(view, *limits)


@needs_compiled
def test_arguments_are_those_of_the_reference() -> None:
    """By position and by name; what is missing, too much, given twice or not known is refused."""
    assert COMPILED is not None
    stream = b"pad" + bytes(80)
    for function in (REFERENCES["scan_adds"], COMPILED.scan_adds):
        assert function(stream, 3, end=83, max_frame=9) == (AddRun(bounds=[3]), 3)
        for arguments, named in [
            ((stream, 3, 83), {}),
            ((stream, 3, 83, 9, 9), {}),
            ((stream, 3, 83, 9), {"end": 83}),
            ((stream, 3, 83), {"most": 9}),
            ((None, 3, 83, 9), {}),
            ((stream, "3", 83, 9), {}),
        ]:
            with pytest.raises(TypeError):
                function(*arguments, **named)


@needs_compiled
@pytest.mark.parametrize("bounds", [(-1, 5), (0, 11), (0, -1), (0, 1 << 70)])
def test_bytes_outside_of_the_buffer_are_never_read(bounds: tuple[int, int]) -> None:
    assert COMPILED is not None
    for arguments in ((COMPILED.scan_adds, 9), (COMPILED.scan_acks, 9), (COMPILED.scan_reads, 9)):
        with pytest.raises((ValueError, OverflowError)):
            arguments[0](bytes(10), *bounds, arguments[1])
    with pytest.raises((ValueError, OverflowError)):
        COMPILED.scan_read_requests(bytes(10), *bounds)


@needs_compiled
@pytest.mark.parametrize(("size", "gap"), [(40, -4), (40, -40), (40, -80), (-40, 40), (-4, 40), (0, 0)])
@pytest.mark.parametrize("name", ["open_together", "open_singles", "open_entries"])
def test_entries_that_overlap_are_not_opened(name: str, size: int, gap: int) -> None:
    """Twenty of them would fill the bytes, where they have 36 in all. Those without a byte may be none instead."""
    even = EvenEntries(memoryview(bytes(720)), size, gap)
    arguments = (list(range(20)), even, 5) if name == "open_singles" else (even, 5, 0)
    assert COMPILED is not None
    refused = (name, size) != ("open_entries", -4)
    with pytest.raises((ValueError, ZeroDivisionError)) if refused else nullcontext():
        assert len(getattr(COMPILED, name)(*arguments, COMPILED.crc32c_digests, 4)) == 0


@needs_compiled
def test_behind_the_highest_id_is_no_entry() -> None:
    last = (1 << 63) - 1
    assert COMPILED is not None
    parts = [
        COMPILED.encode_adds(b"", 5, entry, -1, 0, [b"p"], COMPILED.crc32c_digest, 4)[0] for entry in (last, ~last)
    ]
    entries = [frames.joined(0, 1)[ADD_PREFIX:] for frames in parts]
    for name in ("open_entries", "open_together"):
        run = getattr(COMPILED, name)(entries, 5, last, COMPILED.crc32c_digests, 4)
        assert (len(run), run.last) == (1, last)


@needs_compiled
def test_no_payload_is_written_behind_the_room_for_all() -> None:
    """The length of a view of other numbers is not that of its bytes."""
    assert COMPILED is not None
    frames, _ = COMPILED.encode_adds(b"", 5, 0, -1, 0, [bytes(4004)], COMPILED.crc32c_digest, 4)
    entry = memoryview(frames.joined(0, 1)[ADD_PREFIX:]).cast("q")
    assert len(COMPILED.open_together([entry], 5, 0, COMPILED.crc32c_digests, 4)) == 0


@needs_compiled
def test_a_frame_whose_length_cannot_be_said_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reads the payloads, which therefore take no memory."""
    assert COMPILED is not None
    monkeypatch.setitem(REFERENCES, "encode_v3_adds", lambda *_: "the reference")
    with (
        mmap(-1, 1 << 32, flags=MAP_PRIVATE | MAP_ANONYMOUS, prot=PROT_READ) as memory,
        memoryview(memory) as all_bytes,
    ):
        with all_bytes[: (1 << 32) - 60] as payload, pytest.raises(OverflowError):
            COMPILED.encode_adds(b"", 5, 0, -1, 0, [payload], COMPILED.crc32c_digest, 4)
        head = struct.pack(">II20sqq", (1 << 32) - 1, PLAIN_ADD, b"", 5, 0)
        with all_bytes[: (1 << 32) + 3 - len(head)] as payload:
            assert COMPILED.encode_v3_adds(0, [0], [head, payload]) == "the reference"


@needs_compiled
def test_buffers_are_let_go() -> None:
    """A bytearray can be resized again after each call, also one that failed."""
    assert COMPILED is not None
    data = bytearray(200)
    COMPILED.scan_adds(data, 0, 200, 400)
    COMPILED.scan_uniform_adds(data, 0, 200, 400)
    COMPILED.scan_acks(data, 0, 200, 1)
    COMPILED.scan_reads(data, 0, 200, 1)
    COMPILED.scan_read_requests(data, 0, 200)
    COMPILED.response_entries(data, 3)
    COMPILED.crc32c_digest(data, data)
    COMPILED.open_entries([data, data], 0, 0, COMPILED.crc32c_digests, 4)
    COMPILED.encode_adds(data, 1, 0, -1, (1 << 63) - 300, [], COMPILED.crc32c_digest, 4)
    with pytest.raises(ValueError):
        COMPILED.scan_adds(data, 0, 201, 400)
    with pytest.raises(OverflowError):
        COMPILED.encode_adds(data, 1, 0, -1, (1 << 63) - 300, [data, data], COMPILED.crc32c_digest, 4)
    with pytest.raises(TypeError):
        COMPILED.crc32c_digest(data, 5)
    data.append(0)


@needs_compiled
@pytest.mark.parametrize("name", COMPARISONS)
def test_calls_keep_nothing(name: str) -> None:
    """What they make is gone afterwards; what they are given or share has no more owners than before."""
    seed = chance.randrange(1 << 32)
    print("seed", seed)
    gc.collect()
    gc.freeze()  # so that it is no work to look for garbage among what was there before
    tracemalloc.start()
    try:
        growths = [_growth(name, seed, 60) for _ in range(3)]
        growth_by_few = _growth(name, seed, 5)
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    # Other parts of Python fill their caches at some time, and keep some small object; what leaks is left each time.
    growth_by_few[0] += 200
    leaks = [min(each) - few for *each, few in zip(*growths, growth_by_few, strict=True)]
    assert max(leaks) <= 0, [(what, leak) for what, leak in zip(("bytes", *SHARED), leaks, strict=True) if leak > 0]


def _growth(name: str, seed: int, count: int) -> list[int]:
    """By how many bytes there are more after so many calls, and by how many owners each of the shared objects has."""
    owners, (held, _) = [sys.getrefcount(each) for each in SHARED], tracemalloc.get_traced_memory()
    for at in range(count):
        COMPARISONS[name](Random(seed + at))
    gc.collect()  # Python 3.11 keeps each tuple of 20 items until then
    sys._clear_type_cache()  # and names of attributes that were looked up
    struct._clearcache()  # type: ignore[attr-defined]  # and up to a hundred formats
    growth = [tracemalloc.get_traced_memory()[0] - held]
    return growth + [sys.getrefcount(each) - before for each, before in zip(SHARED, owners, strict=True)]


@needs_compiled
def test_the_instructions_of_the_processor_are_used() -> None:
    assert COMPILED is not None
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    expected = "sse4.2" if "sse4_2" in words else "armv8" if "crc32" in words else "table"
    assert expected == COMPILED.CRC32C


def test_the_variable_chooses() -> None:
    assert load({"TALLY_CODEC": "python"}) is None
    assert load({"TALLY_CODEC": ""}) is load({"TALLY_CODEC": "auto"}) is load({})
    with pytest.raises(UsageError, match="auto, compiled or python"):
        load({"TALLY_CODEC": "cython"})
    assert in_use().split(",")[0] == ("compiled" if is_compiled() else "python")


def test_without_the_module_only_who_demands_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert load({}) is None
    with pytest.raises(UsageError, match="installed without it"):
        load({"TALLY_CODEC": "compiled"})


@needs_compiled
def test_a_module_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPILED, "INTERFACE", 0)
    assert load({}) is None
    with pytest.raises(UsageError, match="another version"):
        load({"TALLY_CODEC": "compiled"})


@pytest.mark.parametrize("choice", ["python", pytest.param("compiled", marks=needs_compiled)])
def test_a_process_has_one_of_them_for_all(choice: str) -> None:
    program = (
        "from tallystick.codec import frames, implementation as i\n"
        "from tallystick.bookkeeper.ledger import add_session\n"
        "python = frames.encode_adds is i.REFERENCES['encode_adds']\n"
        "assert add_session.encode_adds is frames.encode_adds\n"
        "print(i.in_use().split(',')[0], python)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"TALLY_CODEC": choice, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [choice, str(choice == "python")]
