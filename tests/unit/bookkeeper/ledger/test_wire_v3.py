"""Requests of version 3 as the reference has them, and which of its responses are whose."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from support.links import KEY
from tallystick.bookkeeper.ledger import wire_v3
from tallystick.bookkeeper.ledger.outgoing import OutgoingPiece, SharedPieces, cut
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.wire_v3 import ClientWireV3
from tallystick.bookkeeper.ledger.wires import (
    MOST_AT_ONCE,
    SPACE,
    BookieRequest,
    EntryListRequest,
    ForceRequest,
    LongPollRequest,
    ReadLacRequest,
    ReadRequest,
    SpaceRequest,
    WriteLacRequest,
    pack_lac,
    unpack_lac,
)
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.v3 import Header
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.frames import DEFERRED_FLAG, RECOVERY_FLAGS, encode_adds
from tallystick.codec.v3_reads import scan_v3_reads
from tallystick.errors import RemoteProtocolError

Report = tuple[Owner, Code, list[int], list[bytes]]
DIGEST = Digest.of(DigestType.CRC32C)


class Connection:
    """A wire, what is outstanding, and what was reported."""

    def __init__(self) -> None:
        self.outstanding: OutstandingCore[Owner] = OutstandingCore()
        self.reports: list[Report] = []
        self.lacs: list[tuple[int, int]] = []
        self.lanes = itertools.count(1)
        self.wire = ClientWireV3(
            self.outstanding,
            self._report,
            self.lanes,
            lambda ledger, lac, lane: self.lacs.append((ledger, lac)),
        )

    def _report(self, owner: Owner, code: Code, entries: list[int], data: object) -> None:
        assert isinstance(data, list | tuple)
        self.reports.append((owner, code, entries, [bytes(part) for part in data]))

    def lane(self, ledger: int, *entries: int, adds: bool = False) -> tuple[ReadRun, int]:
        """The owner of a lane, who is any, and the id of its requests."""
        name = self.wire.adds_name(ledger, next(self.lanes)) if adds else self.wire.reads_name(ledger)
        run = ReadRun(entries)
        self.outstanding.sent(self.outstanding.lane(name, run), entries, 0.0, 1.0)
        return run, name[1] << 20

    def ask(self, request: BookieRequest) -> tuple[ReadRun, v3.Request]:
        """Its owner, who is any, and the message."""
        owner, (key, piece) = ReadRun([request.entry]), self.wire.request(request)
        self.outstanding.add_request(key, request.entry, owner, 0.0, 1.0)
        return owner, v3.decode_request(b"".join(map(bytes, piece.parts))[4:])

    def hear(self, *messages: responses.Response) -> None:
        buffer, position = bytearray(b"".join(map(responses.encode_response, messages))), 0
        while position < len(buffer):
            if (stop := self.wire.run(buffer, position, len(buffer))) == position:
                stop = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
                self.wire.take_response(bytes(buffer[position + 4 : stop]))
            position = stop


def added(request_id: int, ledger: int, entry: int, code: Code = Code.OK) -> responses.AddResponse:
    return responses.AddResponse(request_id, code, ledger, entry)


def read(request_id: int, ledger: int, entry: int, body: bytes, lac: int | None = None) -> responses.ReadResponse:
    return responses.ReadResponse(request_id, Code.OK, ledger, entry, body, lac)


@pytest.mark.parametrize(
    ("request_value", "message"),
    [
        (ReadRequest(7, 3), v3.ReadRequest(Header(1 << 20), 7, 3)),
        (ReadRequest(7, -1, KEY), v3.ReadRequest(Header(1 << 20), 7, -1, KEY, fence=True)),
        (ReadRequest(7, 3, KEY, high_priority=True), v3.ReadRequest(Header(1 << 20, 100), 7, 3, KEY, fence=True)),
        (LongPollRequest(7, 2, 500), v3.ReadRequest(Header(1 << 20), 7, -1, previous_lac=2, timeout_ms=500)),
        (WriteLacRequest(7, 2, KEY, b"body"), v3.WriteLacRequest(Header(1 << 20), 7, 2, KEY, b"body")),
        (ReadLacRequest(7), v3.ReadLacRequest(Header(1 << 20), 7)),
        (ForceRequest(7), v3.ForceRequest(Header(1 << 20), 7)),
        (EntryListRequest(7), v3.EntryListRequest(Header(1 << 20), 7)),
        (SpaceRequest(), v3.BookieInfoRequest(Header(1 << 20))),
    ],
)
async def test_requests_are_the_references(request_value: BookieRequest, message: v3.Request) -> None:
    assert Connection().ask(request_value)[1] == message


@pytest.mark.parametrize("flags", [0, RECOVERY_FLAGS, DEFERRED_FLAG])
async def test_adds_have_what_the_frames_of_version_2_had(flags: int) -> None:
    connection = Connection()
    name = connection.wire.adds_name(7, 1)
    payloads = [b"a", b"", b"c" * 3000]
    frames, _ = encode_adds(KEY, 7, 5, 4, 0, payloads, DIGEST.compute, DIGEST.size, flags)
    piece = OutgoingPiece(frames.parts, sum(map(len, frames.parts)))
    sent = b"".join(bytes(part) for piece in connection.wire.adds(name, [5, 6, 7], [piece]) for part in piece.parts)
    length, recovery = 0, flags == RECOVERY_FLAGS
    for entry, payload in enumerate(payloads, 5):
        length += len(payload)
        size = int.from_bytes(sent[:4], "big")
        request = v3.decode_request(sent[4 : 4 + size])
        assert isinstance(request, v3.AddRequest)
        assert request.header == Header((name[1] << 20) + entry, 100 if recovery else 0)
        assert (request.ledger, request.entry, request.master_key) == (7, entry, KEY)
        assert (request.recovery, request.deferred_sync) == (recovery, flags == DEFERRED_FLAG)
        header, stored = DIGEST.decode(7, entry, request.body)
        assert (header.lac, header.length, bytes(stored)) == (4, length, payload)
        sent = sent[4 + size :]
    assert not sent


def small_adds(first: int, count: int) -> SharedPieces:
    frames, _ = encode_adds(KEY, 7, first, first - 1, 0, [b"small"] * count, DIGEST.compute, DIGEST.size)
    return SharedPieces(cut(frames.parts))


def request_ids(pieces: Iterable[OutgoingPiece]) -> list[int]:
    data, ids = b"".join(bytes(part) for piece in pieces for part in piece.parts), list[int]()
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        ids.append(v3.decode_request(data[4:size]).header.request_id)
        data = data[size:]
    return ids


async def test_adds_to_several_bookies_are_encoded_once() -> None:
    connections = [Connection(), Connection()]
    frames, entries = small_adds(5, 20), range(5, 25)
    first, second = (each.wire.adds(each.wire.adds_name(7, 3), entries, frames) for each in connections)
    assert first is second and request_ids(first) == [(3 << 20) + entry for entry in entries]
    again = connections[1].wire.adds(connections[1].wire.adds_name(7, 4), entries, frames)
    assert request_ids(again) == [(4 << 20) + entry for entry in entries]  # another lane: late responses are not its


@pytest.mark.parametrize(("left", "count", "number"), [(10, 20, 0), (1, 2, 0), (2, 2, MOST_AT_ONCE - 2)])
async def test_the_numbers_of_adds_stay_in_their_lane(left: int, count: int, number: int) -> None:
    wire, first = Connection().wire, 4 * MOST_AT_ONCE - left
    ids = request_ids(wire.adds(wire.adds_name(7, 3), range(first, first + count), small_adds(first, count)))
    assert ids == [(3 << 20) + number + at for at in range(count)]


async def test_a_row_of_good_responses_is_reported_by_lane() -> None:
    connection = Connection()
    (first, one), (second, two) = connection.lane(1, 0, 1), connection.lane(1, 1, 9)
    alone, request = connection.ask(ReadRequest(1, 5))
    connection.hear(
        read(one, 1, 0, b"0"),
        read(one + 1, 1, 1, b"1"),
        read(two + 2, 1, 1, b"x"),
        read(request.header.request_id, 1, 5, b"5"),
        read(two + 3, 1, 9, b"9"),
    )
    assert connection.reports == [
        (first, Code.OK, [0, 1], [b"0", b"1"]),
        (second, Code.OK, [1], [b"x"]),
        (alone, Code.OK, [5], [b"5"]),
        (second, Code.OK, [9], [b"9"]),
    ]


@pytest.mark.rule("Q6")
async def test_q6_the_lac_of_a_row_is_that_of_its_ledger() -> None:
    connection = Connection()
    _, lane = connection.lane(258, *range(8))
    entry = (258).to_bytes(8, "big") + bytes(28)
    connection.hear(*(read(lane + at, 258, at, entry, lac) for at, lac in enumerate((4, 9, 9, 4, 4, 4, 4, 4))))
    assert connection.lacs == [(258, 9)]
    _, other_lane = connection.lane(259, 0)
    connection.lacs.clear()
    _, lane = connection.lane(258, 8)
    connection.hear(
        read(lane + 8, 258, 8, (258).to_bytes(8, "big") + bytes(28), 4),
        read(other_lane + 9, 259, 0, (259).to_bytes(8, "big") + bytes(28), 99),
    )
    assert set(connection.lacs) <= {(258, 4), (259, 99)}


async def test_ids_of_requests_are_their_own_until_their_numbers_begin_anew() -> None:
    connection = Connection()
    name = connection.wire.reads_name(7)
    ids: list[int] = []
    for _ in range(3):
        entries = range(400_000)
        sent = connection.wire.reads(name, 7, entries)
        [data] = sent.parts
        first = v3.decode_request(bytes(data[4 : 4 + int.from_bytes(data[:4], "big")]))
        ids.append(first.header.request_id)
    assert ids == [name[1] << 20, (name[1] << 20) + 400_000, name[1] << 20]


async def test_adds_of_two_lanes_about_one_entry_are_told_apart() -> None:
    """By version 2 the first response is the older lane's, whoever it was meant for."""
    connection = Connection()
    (older, one), (newer, two) = connection.lane(1, 5, adds=True), connection.lane(1, 5, adds=True)
    connection.hear(added(two, 1, 5), added(one, 1, 5, Code.FENCED))
    assert connection.reports == [(newer, Code.OK, [5], []), (older, Code.FENCED, [5], [])]


@pytest.mark.rule("Q11", "Q12")
async def test_q12_a_fencing_read_has_its_own_response() -> None:
    connection = Connection()
    fence, request = connection.ask(ReadRequest(1, -1, KEY))
    plain, other = connection.ask(ReadRequest(1, -1))
    connection.hear(read(other.header.request_id, 1, -1, b"last"))
    assert connection.reports == [(plain, Code.OK, [-1], [b"last"])]
    connection.hear(responses.ReadResponse(request.header.request_id, Code.NO_ENTRY, 1, -1))
    assert connection.reports[1] == (fence, Code.NO_ENTRY, [-1], [])


async def test_a_long_poll_hears_the_lac_and_the_entry_that_it_allows() -> None:
    connection = Connection()
    polls = [connection.ask(LongPollRequest(1, 4, 500)) for _ in range(3)]
    (_, first), (_, second), (_, third) = polls
    connection.hear(
        responses.ReadResponse(third.header.request_id, Code.NO_LEDGER, 1, -1),
        responses.ReadResponse(second.header.request_id, Code.OK, 1, -1, None, 4),
        read(first.header.request_id, 1, 5, b"five", 6),
    )
    (owner, code, _, parts), (_, _, _, empty), (_, _, _, full) = connection.reports
    assert (owner, code, len(parts)) == (polls[2][0], Code.NO_LEDGER, 1)
    assert [unpack_lac(empty[0])] == [4] and len(empty) == 1
    assert unpack_lac(full[0]) == 6 and full[1] == b"five"
    assert connection.lacs == [(1, 4), (1, 6)]


@pytest.mark.parametrize("with_reads", [False, True])
async def test_long_polls_that_are_answered_in_one_read_are_scanned_once(
    monkeypatch: pytest.MonkeyPatch, with_reads: bool
) -> None:
    """All that follow a ledger hear of an append at once; each answer was scanned once for each one before it."""
    scanned: list[int] = []

    def counted(buffer: bytearray, start: int, end: int) -> tuple[list[int], list[int], list[bytes], int, int]:
        scan = scan_v3_reads(buffer, start, end)
        scanned.extend(scan[0])
        return scan

    monkeypatch.setattr(wire_v3, "scan_v3_reads", counted)
    connection = Connection()
    messages: list[responses.Response] = []
    expected: list[Report] = []
    for number in range(100):
        poll, request = connection.ask(LongPollRequest(7, 40, 5000))
        messages.append(read(request.header.request_id, 7, 41, b"x", 41))
        expected.append((poll, Code.OK, [41], [pack_lac(41), b"x"]))
        if with_reads and number % 3 == 0:
            run, first = connection.lane(8, 0, 1)
            messages += [read(first + entry, 8, entry, b"%d" % entry) for entry in range(2)]
            expected.append((run, Code.OK, [0, 1], [b"0", b"1"]))
    connection.hear(*messages)
    assert connection.reports == expected
    assert len(scanned) == len(messages) == len(set(scanned))


async def test_lone_requests_get_their_parts() -> None:
    connection = Connection()
    asked = [
        connection.ask(request)
        for request in (
            WriteLacRequest(1, 2, KEY, b""),
            ForceRequest(1),
            ReadLacRequest(1),
            ReadLacRequest(1),
            SpaceRequest(),
            EntryListRequest(1),
        )
    ]
    ids = [request.header.request_id for _, request in asked]
    connection.hear(
        responses.WriteLacResponse(ids[0], Code.OK, 1),
        responses.ForceResponse(ids[1], Code.OK, 1),
        responses.ReadLacResponse(ids[2], Code.OK, 1, b"lac", None),
        responses.ReadLacResponse(ids[3], Code.NO_ENTRY, 1),
        responses.BookieInfoResponse(ids[4], Code.OK, 100, 40),
        responses.EntryListResponse(ids[5], Code.OK, 1, b"list"),
    )
    assert [(code, parts) for _, code, _, parts in connection.reports] == [
        (Code.OK, []),
        (Code.OK, []),
        (Code.OK, [b"lac", b""]),
        (Code.NO_ENTRY, []),
        (Code.OK, [SPACE.pack(100, 40)]),
        (Code.OK, [b"list"]),
    ]
    assert [owner for owner, _, _, _ in connection.reports] == [owner for owner, _ in asked]


async def test_a_refusal_without_a_message_goes_to_who_asked() -> None:
    connection = Connection()
    poll, request = connection.ask(LongPollRequest(1, 4, 500))
    force, other = connection.ask(ForceRequest(1))
    connection.hear(
        responses.RefusedResponse(other.header.request_id, v3.Operation.FORCE, Code.BAD_REQUEST),
        responses.RefusedResponse(request.header.request_id, v3.Operation.READ, Code.UNAUTHORIZED),
    )
    assert connection.reports == [(force, Code.BAD_REQUEST, [-1], []), (poll, Code.UNAUTHORIZED, [5], [])]


@pytest.mark.rule("N13")
async def test_what_nobody_asked_for_ends_the_connection() -> None:
    connection = Connection()
    _, lane = connection.lane(1, 0, 1)
    for message in (
        added(99, 1, 0),
        read(99, 1, 0, b""),
        read(lane, 1, 7, b"another entry"),
        responses.RefusedResponse(lane, v3.Operation.READ, Code.IO_ERROR),
        responses.ForceResponse(99, Code.OK, 1),
        responses.AuthResponse(99, Code.OK),
    ):
        with pytest.raises(RemoteProtocolError):
            connection.hear(message)


async def test_a_good_response_to_a_read_has_an_entry() -> None:
    connection = Connection()
    _, lane = connection.lane(1, 0)
    with pytest.raises(RemoteProtocolError, match="no entry"):
        connection.hear(responses.ReadResponse(lane, Code.OK, 1, 0))
