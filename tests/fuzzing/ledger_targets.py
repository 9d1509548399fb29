"""What strangers send to bookies, what bookies send to clients, and what is read of the metadata.

A target gets bytes and raises what nobody expects. ``SEEDS`` are where a search begins.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fuzzing.targets import Target
from support.bookies import KEY, adds, read
from support.room_v3 import Room, make_room
from support.strangers import OpenGate, serve_all
from support.v3_frames import adds_v3, entry_body, lac_body, poll_v3, read_v3, write_lac_v3
from tallystick.bookkeeper.bookie.handshake import Handshake
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.ledger.wire_v2 import ClientWireV2
from tallystick.bookkeeper.ledger.wire_v3 import ClientWireV3
from tallystick.bookkeeper.ledger.wires import BatchRequest, ClientWire, LongPollRequest, ReadLacRequest, ReadRequest
from tallystick.bookkeeper.wire import cookie, metadata, registration, v2, v3, v3_responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.entry_list import EntryList, encode_runs
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.frames import Buffer, scan_adds
from tallystick.codec.uniform import scan_uniform_adds
from tallystick.codec.v3_adds import scan_v3_adds
from tallystick.errors import DigestMismatch, InvalidCookie, MetadataError, RemoteProtocolError, TallyError

GOLDEN = Path(__file__).resolve().parent.parent / "wire" / "golden"
MAX_BODY = 64 * 1024
LIFE = 2000  # requests of one bookie before a new one takes its place


def _golden(name: str, kind: str) -> list[bytes]:
    recorded = json.loads((GOLDEN / name).read_text())
    return [bytes.fromhex(exchange["request"]) for exchange in recorded[kind]]


REQUESTS = [*_golden("v2.json", "v2"), *_golden("v3.json", "v3")]
RESPONSES = [
    bytes.fromhex(frame["frame"])
    for frame in json.loads((GOLDEN / "v3.json").read_text())["client"]
    if frame["from"] == "bookie"
]


def requests_v2(data: bytes) -> None:
    try:
        request = v2.decode_request(data)
    except RemoteProtocolError:
        return
    if request.version >= 1:  # trailing bytes are ignored, so that the encoding may be shorter
        assert v2.decode_request(request.encode()[4:]) == request


def requests_v3(data: bytes) -> None:
    try:
        request = v3.decode_request(data)
    except RemoteProtocolError:
        return
    if not isinstance(request, v3.UnknownRequest):
        assert v3.decode_request(v3.encode_request(request)[4:]) == request


def strangers(data: bytes) -> None:
    """The first byte says what the bookie asks for; the rest is what somebody sends who has no key."""
    asks = data[0] if data else 0
    gate = OpenGate(tls=bool(asks & 1), must_encrypt=asks & 3 == 3, must_authenticate=not asks & 4)
    result = serve_all(Handshake(gate, "host"), data[1:])
    assert result.size <= 64 * 1024
    assert all(identity.kind == "anonymous" for identity in gate.came)
    assert not gate.came or not gate.must_authenticate


def responses_v3(data: bytes) -> None:
    try:
        response = v3_responses.decode_response(data)
    except RemoteProtocolError:
        return
    if response.code in v3.NUMBERS:
        again = v3_responses.decode_response(v3_responses.encode_response(response)[4:])
        assert (type(again), again.request_id) == (type(response), response.request_id)


def columns_of_adds(data: bytes) -> None:
    """What goes by columns is what frame by frame it would be."""
    run, stop = scan_adds(data, 0, len(data), MAX_BODY)
    even = scan_uniform_adds(data, 0, len(data), MAX_BODY)
    if even is not None:
        count = len(even[0])
        assert (run.ledgers[:count], run.entries[:count], run.bounds[: count + 1]) == (
            even[0].ledgers, even[0].entries, even[0].bounds,
        )  # fmt: skip
    assert stop == run.bounds[-1] <= len(data)
    for at in range(len(run)):
        frame = v2.decode_request(data[run.bounds[at] + 4 : run.bounds[at + 1]])
        assert isinstance(frame, v2.AddFrame)
        assert (frame.ledger, frame.entry, frame.master_key) == (run.ledgers[at], run.entries[at], run.keys[at])


def columns_of_adds_v3(data: bytes) -> None:
    taken, stop = scan_v3_adds(data, 0, len(data), MAX_BODY)
    position = 0
    for at, request_id in enumerate(taken.txn_ids):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        request = v3.decode_request(data[position + 4 : end])
        assert isinstance(request, v3.AddRequest)
        run, low, high = taken.run, taken.run.bounds[at], taken.run.bounds[at + 1]
        assert (request.header.request_id, request.header.priority) == (request_id, 0)
        assert (request.ledger, request.entry, request.master_key) == (run.ledgers[at], run.entries[at], run.keys[at])
        assert request.body == taken.stored[low + 28 : high]
        assert not request.recovery and request.deferred_sync == taken.deferred
        position = end
    assert position == stop <= len(data)


class Bookie:
    """A bookie's wires over its storage, which is made anew after a while."""

    def __init__(self) -> None:
        self._room: Room | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._calls = 0

    def __call__(self, data: bytes) -> None:
        if self._room is None or self._calls >= LIFE:
            self._renew()
        assert self._room is not None
        self._calls += 1
        for wire in (self._room.v2, self._room.wire):
            served = wire.serve(data)
            assert 0 <= served.position <= len(data)
            if served.position < len(data) and not served.refusal and served.size < served.limit:
                assert served.need or served.read_is_next or served.next_wire is not None
        if self._room.storage.staged:
            self._room.storage.commit(self._room.storage.take())

    def _renew(self) -> None:
        if self._room is not None and self._folder is not None:
            self._room.storage.close(clean=False)
            self._folder.cleanup()
        self._folder = tempfile.TemporaryDirectory()
        self._room, self._calls = make_room(Path(self._folder.name)), 0
        self._room.ask(adds_v3(7, range(20)))


class Anybody:
    """An owner of requests that hears everything."""

    def received(self, entries: list[int], data: Sequence[Buffer]) -> None: ...

    def refused(self, entries: list[int], code: Code) -> None: ...

    def failed(self, entries: list[int], error: TallyError) -> None: ...


def client(make: Callable[[OutstandingCore[Owner]], ClientWire], *requests: object) -> Callable[[bytes], None]:
    """A client with requests under way, that hears this."""

    def hear(data: bytes) -> None:
        outstanding: OutstandingCore[Owner] = OutstandingCore()
        wire = make(outstanding)
        for name, entries in ((wire.adds_name(0, 9), range(8)), (wire.reads_name(0), range(8))):
            outstanding.sent(outstanding.lane(name, Anybody()), entries, 0.0, 1.0)
        for request in requests:
            key, _ = wire.request(request)  # type: ignore[arg-type]  # those of this protocol
            outstanding.add_request(key, -1, Anybody(), 0.0, 1.0)
        buffer, position = bytearray(data), 0
        try:
            while position + 4 <= len(buffer):
                if (stop := wire.run(buffer, position, len(buffer))) == position:
                    stop = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
                    if stop > len(buffer):
                        break
                    wire.take_response(bytes(buffer[position + 4 : stop]))
                assert position < stop <= len(buffer)
                position = stop
        except RemoteProtocolError:
            return

    return hear


def _client_v2(outstanding: OutstandingCore[Owner]) -> ClientWire:
    return ClientWireV2(outstanding, lambda owner, code, entries, data: None)


def _client_v3(outstanding: OutstandingCore[Owner]) -> ClientWire:
    report = lambda owner, code, entries, data: None  # noqa: E731
    return ClientWireV3(outstanding, report, itertools.count(), lambda ledger, lac, lane: None)


def entry_lists(data: bytes) -> None:
    try:
        listed = EntryList.decode(data)
    except RemoteProtocolError:
        return
    runs = list(itertools.islice(listed.runs(), 100))
    assert list(EntryList.decode(encode_runs(runs)).runs()) == runs and listed.count >= 0


def entries(data: bytes) -> None:
    for kind in DigestType:
        try:
            Digest.of(kind, b"pw").decode(7, None, data)
        except DigestMismatch:
            continue


def nodes(data: bytes) -> None:
    """What the coordination service has of ledgers and bookies: others write there, too."""
    for decode in (metadata.decode, cookie.decode, lambda data: registration.decode(data, "bookie")):
        try:
            decode(data)
        except (MetadataError, InvalidCookie):
            continue


FIXED = [adds(7, range(20, 30)), read(7, 3), read(7, -1, KEY), *(adds_v3(7, range(20, 30)), read_v3(7, 3))]
TARGETS = (
    Target("requests-v2", requests_v2, [frame[4:] for frame in REQUESTS]),
    Target("requests-v3", requests_v3, [frame[4:] for frame in REQUESTS]),
    Target("responses-v3", responses_v3, [frame[4:] for frame in RESPONSES]),
    Target("columns-v2", columns_of_adds, FIXED),
    Target("columns-v3", columns_of_adds_v3, FIXED),
    Target("strangers", strangers, [bytes([asks]) + frame for asks in range(8) for frame in REQUESTS[:4]]),
    Target("bookie", Bookie(), [*REQUESTS, *FIXED, poll_v3(7, 3), write_lac_v3(7, 3), lac_body(7, 3)]),
    Target("client-v2", client(_client_v2, ReadRequest(0, -1), BatchRequest(0, 0, 10, 100)), RESPONSES),
    Target("client-v3", client(_client_v3, LongPollRequest(0, 1, 100), ReadLacRequest(0)), RESPONSES),
    Target("entry-lists", entry_lists, [encode_runs([(0, 2), (4, 9)])]),
    Target("entries", entries, [entry_body(7, 3)]),
    Target("nodes", nodes, []),
)
