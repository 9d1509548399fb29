"""Frames of version 3 as they come: other versions, garbage, cut anywhere, and more than one call may answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.bookies import KEY, OTHER_KEY, adds, read
from support.room_v3 import MAX_FRAME, Room, make_room
from support.v3_frames import (
    HIGH,
    adds_v3,
    bodies,
    codes_v3,
    lac_body,
    poll_v3,
    read_v3,
    request_v3,
    write_lac_v3,
)
from tallystick.bookkeeper.bookie.wires import RESPONSE_BYTES, SHORT_BYTES
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import RemoteProtocolError


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = make_room(tmp_path)
    yield made
    made.storage.close(clean=False)


# Frames.


@pytest.mark.parametrize("version", [1, 2])
def test_another_version_in_the_header_is_answered_as_that(room: Room, version: int) -> None:
    asked = [
        adds_v3(1, [0], version=version), adds_v3(1, [0], version=version, deferred_sync=True),
        read_v3(1, 0, version=version), read_v3(1, -1, KEY, version=version),
        request_v3(v3.ReadRequest, 1, -1, previous_lac=0, version=version),
        request_v3(v3.WriteLacRequest, 1, 0, KEY, lac_body(1, 0), version=version),
        *(request_v3(kind, 1, version=version) for kind in (v3.ReadLacRequest, v3.ForceRequest, v3.EntryListRequest)),
        request_v3(v3.BookieInfoRequest, 3, version=version),
    ]  # fmt: skip
    assert room.codes(b"".join(asked)) == [Code.BAD_VERSION] * len(asked)
    assert not room.storage.ledger_ids()


def test_what_a_bookie_has_not_is_said(room: Room) -> None:
    """A client that asks for TLS, or to prove who it is, or for a batch."""
    batch = bytes.fromhex("000000080a060803100c184d")
    tls = bytes.fromhex("0000000b0a0608031009180cd20600")
    assert room.codes(batch + tls) == [Code.BAD_REQUEST] * 2
    (answer,) = room.answers(bytes.fromhex("000000130a0608031005180db206080a047361736c1200"))
    assert (answer.code, answer.plugin) == (Code.OK, b"AuthDisabledPlugin")


def test_a_request_id_that_is_used_twice_is_answered_twice(room: Room) -> None:
    assert len(room.answers(adds_v3(1, [0], number=4) + adds_v3(1, [0], number=4))) == 2
    asked = read_v3(1, 0, number=4) * 3 + request_v3(v3.ReadLacRequest, 1, number=4) * 2
    assert [answer.request_id for answer in room.answers(asked)] == [4] * 5


def test_a_frame_of_version_2_turns_the_connection(room: Room) -> None:
    before, after = adds_v3(1, [0]), read(1, 0) + adds(1, [1])
    served = room.ask(before + after)
    assert (served.position, served.next_wire) == (len(before), room.v2)
    for frame in (bytes(4), bytes.fromhex("00000008a2060508e8071000")):
        assert room.ask(frame).next_wire is room.v2, "and that closes it"


GARBAGE = {
    "no header": "0a03616263",
    "half a header": "0a04080310",
    "no read request": "0a0608031001180e",
    "no add request": "0a0608031002180e",
    "no LAC": "0a0608031006180e",
    "an operation that is none": "0a0608031063184f",
    "a version that is none": "0a06080910011800",
    "a varint of eleven bytes": "0a0f0803100118ffffffffffffffffffff7f",
    "a length beyond the end": "0a0608031001180ea206ffffffff07",
    "a request without an entry": "0a0608031001180ea2060508e80720",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_request_ends_the_connection(room: Room, garbage: str) -> None:
    body = bytes.fromhex(garbage)
    good = read_v3(1, 0, number=5)
    served = room.wire.serve(good + len(body).to_bytes(4, "big") + body + good)
    assert isinstance(served.refusal, RemoteProtocolError) and served.position == len(good)
    assert codes_v3(b"".join(served.at_once)) == [(5, Code.NO_LEDGER)]


def test_groups_within_groups_are_an_answer_or_an_end(room: Room) -> None:
    deep = b"\x0a\x06\x08\x03\x10\x01\x18\x0e" + b"\x0b" * 30_000
    served = room.wire.serve(len(deep).to_bytes(4, "big") + deep)
    assert served.refusal is not None or served.position == len(deep) + 4


def test_the_frame_limit_counts_the_length_field(room: Room) -> None:
    head = len(adds_v3(1, [0], bytes(MAX_FRAME - 200))) - (MAX_FRAME - 200)
    assert room.codes(adds_v3(1, [0], bytes(MAX_FRAME - head))) == [Code.OK]
    for beginning in (adds_v3(1, [1], bytes(MAX_FRAME)), adds_v3(1, [1], bytes(MAX_FRAME))[:4], b"\xff\xff\xff\xff"):
        refused = room.wire.serve(beginning).refusal
        assert isinstance(refused, RemoteProtocolError)
        assert "nettyMaxFrameSizeBytes" in str(refused)
        assert refused.__traceback__ is None, "it has frames that have all that came"


def test_an_unfinished_frame_says_how_much_it_needs(room: Room) -> None:
    frame = adds_v3(1, [0])
    for cut, need in ((3, 4), (4, len(frame)), (30, len(frame))):
        served = room.ask(frame + frame[:cut])
        assert (served.position, served.need) == (len(frame), need)


def test_one_call_makes_a_bounded_answer_and_goes_on_where_it_stopped(room: Room) -> None:
    room.ask(adds_v3(1, range(50), bytes(50_000)))
    asked = b"".join(read_v3(1, entry, number=entry) for entry in range(50))
    answers, calls = b"", 0
    while asked:
        served = room.ask(asked)
        assert served.size <= RESPONSE_BYTES + MAX_FRAME
        answers += b"".join(served.at_once)
        asked, calls = asked[served.position :], calls + 1
    assert calls == 3
    assert codes_v3(answers) == [(entry, Code.OK) for entry in range(50)]


def test_short_answers_leave_the_rest_for_later_and_always_have_an_entry(room: Room) -> None:
    room.ask(adds_v3(1, range(10), bytes(30_000)))
    reads = b"".join(read_v3(1, entry) for entry in range(10))
    served = room.wire.serve(reads, short=True)
    assert 0 < served.position < len(reads) and served.size < 2 * SHORT_BYTES and served.need == 0


def test_an_add_among_many_reads_does_not_keep_their_bytes(room: Room) -> None:
    room.ask(read_v3(5, 0) * 2000 + adds_v3(1, [0]))
    assert room.storage.take().size == len(adds(1, [0]))
    assert room.storage.stats().memtable_bytes < 2000


def test_without_reads_it_ends_before_the_first_and_goes_on_there(room: Room) -> None:
    room.ask(adds_v3(1, range(3)))
    kinds = (v3.ReadLacRequest, v3.EntryListRequest)
    for asked in (read_v3(1, 0), read_v3(1, 0, KEY), poll_v3(1, 0), *(request_v3(kind, 1) for kind in kinds)):
        data = adds_v3(1, [3]) + asked + adds_v3(2, [0])
        served = room.wire.serve(data, reads=False)
        assert (served.position, served.read_is_next, served.reads) == (len(adds_v3(1, [3])), True, False)
        rest = room.wire.serve(data[served.position :])
        assert (rest.position, rest.read_is_next, rest.reads) == (len(data) - served.position, False, True)
    others = request_v3(v3.ForceRequest, 1) + write_lac_v3(1, 0) + request_v3(v3.BookieInfoRequest, 3) + adds_v3(1, [4])
    assert room.wire.serve(others, reads=False).position == len(others)
    assert room.wire.is_read(read_v3(1, 0)) and not room.wire.is_read(adds_v3(1, [0]))
    assert not room.wire.is_read(read_v3(1, 0)[:9]), "too little is here"


@pytest.mark.parametrize("kind", [v3.ReadRequest, v3.ReadLacRequest, v3.EntryListRequest])
def test_a_read_whose_header_has_another_order_is_none_less(room: Room, kind: type[object]) -> None:
    """Such were served in the time of adds, as many as there were connections, each for a turn's time."""
    room.ask(adds_v3(1, [0]))
    usual = request_v3(kind, 1, *([0] if kind is v3.ReadRequest else []), number=5)
    version, operation, request_id = usual[6:8], usual[8:10], usual[10:12]
    assert (version, request_id) == (b"\x08\x03", b"\x18\x05") and operation[:1] == b"\x10"
    for header in (request_id + version + operation, operation + request_id + version):
        odd = usual[:6] + header + usual[12:]
        assert not room.wire.is_read(odd)
        served = room.wire.serve(odd, reads=False)
        assert (served.position, served.read_is_next, served.size, served.reads) == (0, True, 0, False)
        assert room.wire.serve(odd).reads and room.answers(odd) == room.answers(usual)


REQUESTS = st.sampled_from([
    adds_v3(1, [0, 1, 2]), adds_v3(1, [5]), adds_v3(2, [0], key=OTHER_KEY), adds_v3(2, [0]), adds_v3(1, [9], **HIGH),
    adds_v3(1, [7], deferred_sync=True), read_v3(1, 0), read_v3(1, 0) + read_v3(1, 1) + read_v3(1, 2), read_v3(1, -1),
    read_v3(1, -1) + read_v3(1, 0), read_v3(3, 0), read_v3(2, 0, KEY), adds_v3(1, [-3]), write_lac_v3(1, 1),
    poll_v3(1, 0), request_v3(v3.ReadLacRequest, 1), request_v3(v3.ForceRequest, 1),
    request_v3(v3.BookieInfoRequest, 3),
])  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(REQUESTS, max_size=12), st.lists(st.integers(1, 60), max_size=40))
def test_answers_do_not_depend_on_how_the_bytes_arrive(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], cuts: list[int]
) -> None:
    """The dumb twin gets one frame a call."""
    data = b"".join(parts)

    def play(pieces: list[bytes]) -> list[bytes]:
        room = make_room(tmp_path_factory.mktemp("room"))
        rest, answers = b"", b""
        for piece in pieces:
            served = room.ask(rest + piece)
            rest = (rest + piece)[served.position :]
            answers += b"".join([*served.at_once, *served.when_durable])
        room.storage.close(clean=False)
        assert not rest
        return sorted(bodies(answers))

    pieces, position = [], 0
    for cut in cuts:
        pieces.append(data[position : position + cut])
        position += cut
    pieces.append(data[position:])
    assert play(pieces) == play([len(body).to_bytes(4, "big") + body for body in bodies(data)])
