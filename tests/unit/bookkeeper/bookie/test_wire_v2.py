"""What a bookie answers in version 2, without sockets: one call a buffer."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.bookies import KEY, OTHER_KEY, SMALL, adds, codes, read
from tallystick.bookkeeper.bookie import entry_log
from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.service import AddRunResponse, Service
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.wire_v2 import WireV2
from tallystick.bookkeeper.bookie.wires import RESPONSE_BYTES, RUN_BYTES, RUN_LEDGERS, SHORT_BYTES, ServeResult
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v2 import Op, RequestFlag
from tallystick.codec.frames import AddRun
from tallystick.errors import RemoteProtocolError, StorageError
from tallystick.runtime.disk import OsDisk, Usage

MAX_FRAME = 64 * 1024
GIB = 1024**3
LOOKS = 5  # so many requests may wait


@dataclass
class Room:
    wire: WireV2
    service: Service
    storage: Storage
    guard: DiskGuard
    counts: Counts

    def ask(self, data: bytes) -> ServeResult:
        served = self.wire.serve(data)
        assert served.refusal is None
        return served

    def codes(self, data: bytes) -> list[int]:
        """Codes of the answers to a buffer of whole frames, durable ones last."""
        served = self.ask(data)
        assert served.position == len(data)
        return [code for _, code, _, _ in codes(b"".join([*served.at_once, *served.when_durable]))]


def make_room(path: Path, max_batch_bytes: int = 4096, fences: int = 1000, settings: StorageSettings = SMALL) -> Room:
    storage = Storage.open(OsDisk(), StorageFolders((str(path / "journal"),), (str(path / "ledgers"),)), settings)
    guard, counts, recent = DiskGuard(0.95), Counts(), RecentAdds()
    bounded = Fences(storage, counts, recent, fences, looks=lambda more: more < LOOKS, tell=lambda: None)
    service = Service(storage, guard, bounded, counts, recent, looks=lambda: False, look_at=lambda ledger: None)
    wire = WireV2(service, max_frame_bytes=MAX_FRAME, max_batch_bytes=max_batch_bytes)
    return Room(wire, service, storage, guard, counts)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = make_room(tmp_path)
    yield made
    made.storage.close(clean=False)


def test_adds_are_answered_when_they_are_durable(room: Room) -> None:
    data = adds(7, range(100))
    served = room.ask(data)
    assert not served.at_once
    assert codes(b"".join(served.when_durable)) == [(Op.ADD, Code.OK, 7, entry) for entry in range(100)]
    assert room.storage.staged
    assert (room.counts.adds, room.counts.adds_failed, room.counts.add_bytes) == (100, 0, len(data))


def test_a_call_ends_when_its_time_is_over_whatever_came_with_one_read(room: Room) -> None:
    """20,000 fences of ledgers that nobody made came with one read, and took half a second of the loop."""
    data, left = b"".join(read(ledger, -1, KEY) for ledger in range(100)), iter(range(9, -1, -1))
    served = room.wire.serve(data, has_time=lambda: next(left) > 0)
    assert len(served.when_durable) == 10 and served.position == len(data) // 10 and not served.need
    rest = room.wire.serve(data[served.position :], has_time=lambda: True)
    assert len(rest.when_durable) == 90


@pytest.mark.parametrize("stored", [True, False])
def test_plain_reads_of_one_socket_read_end_when_the_time_is_over_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """Each may be a read of the disk: 2,048 of them were 130 ms of the loop."""
    monkeypatch.setattr(entry_log, "_SCATTERED_BYTES", 1)  # so much is read for one call
    room = make_room(tmp_path, settings=replace(SMALL, chunk_bytes=1))
    for entry in range(200) if stored else ():
        room.ask(adds(7, [entry], bytes(20_000 * (entry % 2))))  # the even ones lie far from each other
    room.storage.checkpoint()
    data, left = b"".join(read(7, entry) for entry in range(0, 200, 2)), iter([*range(9, -1, -1), 0])
    served = room.wire.serve(data, has_time=lambda: next(left) > 0)
    assert len(served.at_once) == 10 and served.position == len(data) // 10 and not served.need
    rest = room.wire.serve(data[served.position :], has_time=lambda: True)
    assert len(rest.at_once) == 90
    room.storage.close(clean=False)


def test_adds_that_came_together_are_stored_some_at_a_time_while_there_is_time(room: Room) -> None:
    """A read of a megabyte of the shortest adds took 30 ms of a turn, whatever time it had."""
    data, left = adds(7, range(10_000), b""), iter((1, 0))
    served = room.wire.serve(data, has_time=lambda: next(left) > 0)
    assert 0 < served.position <= 2 * RUN_BYTES < len(data)
    room.ask(data[served.position :])
    assert room.storage.last_entry(7) == 9999


def test_first_adds_of_many_ledgers_are_stored_some_at_a_time(room: Room) -> None:
    data, left = b"".join(adds(ledger, [0]) for ledger in range(3 * RUN_LEDGERS)), iter((1, 0))
    served = room.wire.serve(data, has_time=lambda: next(left) > 0)
    assert served.position == 2 * len(data) // 3
    rest = room.wire.serve(data[served.position :])
    assert codes(b"".join(served.when_durable + rest.when_durable)) == [
        (Op.ADD, Code.OK, ledger, 0) for ledger in range(3 * RUN_LEDGERS)
    ]


def test_first_adds_of_many_ledgers_are_stored_some_at_a_time_also_behind_a_long_frame(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[int] = []
    add_run = room.service.add_run

    def counted(data: bytes, run: AddRun, *, behind: AbstractSet[int]) -> AddRunResponse:
        stored.append(len(run))
        return add_run(data, run, behind=behind)

    monkeypatch.setattr(room.service, "add_run", counted)
    alone = adds(1, [0], bytes(MAX_FRAME // 2), flags=RequestFlag.RECOVERY_ADD)
    room.ask(alone + b"".join(adds(ledger, [0]) for ledger in range(2, 2 + 3 * RUN_LEDGERS)))
    assert stored == [RUN_LEDGERS] * 3


def test_a_refused_add_is_answered_at_once_and_the_others_when_durable(room: Room) -> None:
    room.ask(adds(1, [0]))
    served = room.ask(adds(1, [1]) + adds(1, [2], key=OTHER_KEY) + adds(2, [0]))
    assert codes(b"".join(served.at_once)) == [(Op.ADD, Code.UNAUTHORIZED, 1, 2)]
    assert codes(b"".join(served.when_durable)) == [(Op.ADD, Code.OK, 1, 1), (Op.ADD, Code.OK, 2, 0)]
    assert room.counts.adds_failed == 1


@pytest.mark.rule("Q11")
@pytest.mark.parametrize("ledger", [1, 99], ids=["known ledger", "never seen"])
def test_q11_every_answer_to_a_fencing_read_waits_until_the_fence_is_durable(room: Room, ledger: int) -> None:
    room.ask(adds(1, range(3)))
    for entry in (-1, 0, 5):
        served = room.ask(read(ledger, entry, KEY))
        assert not served.at_once
        assert len(served.when_durable) == 1
    assert room.codes(adds(ledger, [3])) == [Code.FENCED]
    assert room.codes(adds(ledger, [3], flags=RequestFlag.RECOVERY_ADD | RequestFlag.HIGH_PRIORITY)) == [Code.OK]


@pytest.mark.rule("Q11")
def test_q11_a_wrong_key_does_not_fence(room: Room) -> None:
    room.ask(adds(1, [0]))
    assert room.codes(read(1, -1, OTHER_KEY)) == [Code.UNAUTHORIZED]
    assert room.codes(adds(1, [1])) == [Code.OK]


@pytest.mark.rule("Q15")
def test_q15_a_disk_error_is_never_a_no(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.ask(adds(1, range(3)))

    def broken(*_: object) -> tuple[int, bytes]:
        raise StorageError("the disk does not answer")

    for name in ("read", "read_frames", "batch"):
        monkeypatch.setattr(room.storage, name, broken)
    assert room.codes(read(1, 0) + read(1, 9) + read(1, -1) + read(1, 0, KEY)) == [Code.IO_ERROR] * 4
    served = room.ask(v2.BatchReadFrame(1, 0, 5, 10, 1000).encode())
    answer = v2.decode_response(served.at_once[0][4:])
    assert isinstance(answer, v2.BatchReadResponse) and answer.code == Code.IO_ERROR


@pytest.mark.parametrize(
    "request_",
    [
        adds(1, [-5]),
        adds(1, [-0x1000]),
        adds(-7, [0]),
        adds(-7, [0], flags=RequestFlag.RECOVERY_ADD),
        adds(1, [-0x2000], flags=RequestFlag.HIGH_PRIORITY),
        read(-1, 0),
        read(1, -2),
        read(-1, 0, KEY),
        read(1, -2, KEY),
        v2.AddFrame(3, 0, KEY, bytes(16)).encode(),
    ],
)
def test_bad_ids_and_headless_entries_are_bad_requests_and_leave_nothing(room: Room, request_: bytes) -> None:
    assert room.codes(request_) == [Code.BAD_REQUEST]
    assert not room.storage.staged
    assert not room.storage.ledger_ids()


def test_a_version_above_2_is_answered_with_103(room: Room) -> None:
    assert room.codes(read(1, 0, version=3)) == [Code.BAD_VERSION]
    assert room.codes(read(1, 0, KEY, version=9)) == [Code.BAD_VERSION]
    frame = adds(1, [0])
    assert room.codes(frame[:4] + b"\x03" + frame[5:]) == [Code.BAD_VERSION]
    assert not room.storage.ledger_ids()


def test_the_frame_limit_counts_the_length_field(room: Room) -> None:
    most = MAX_FRAME - 4 - 24 - 36
    assert room.codes(adds(1, [0], bytes(most))) == [Code.OK]
    for beginning in (adds(1, [1], bytes(most + 1)), adds(1, [1], bytes(most + 1))[:4], b"\xff\xff\xff\xff"):
        refused = room.wire.serve(beginning).refusal
        assert isinstance(refused, RemoteProtocolError)
        assert "nettyMaxFrameSizeBytes" in str(refused)
        assert refused.__traceback__ is None, "it has frames that have all that came"


def test_an_unfinished_frame_says_how_much_it_needs(room: Room) -> None:
    frame = adds(1, [0])
    served = room.ask(frame + frame[:3])
    assert (served.position, served.need) == (len(frame), 4)
    served = room.ask(frame + frame[:30])
    assert (served.position, served.need) == (len(frame), len(frame))


@pytest.mark.rule("Q17")
def test_q17_a_batch_read_is_limited_by_the_bookie_and_gives_at_least_one_entry(room: Room) -> None:
    room.ask(adds(1, range(20), bytes(1000)))
    answer = v2.decode_response(room.ask(v2.BatchReadFrame(1, 2, 77, 0, 1 << 40).encode()).at_once[0][4:])
    assert isinstance(answer, v2.BatchReadResponse)
    assert (answer.code, answer.first, answer.request_id, len(answer.entries)) == (Code.OK, 2, 77, 3)
    answer = v2.decode_response(room.ask(v2.BatchReadFrame(1, 2, 77, 0, 1).encode()).at_once[0][4:])
    assert isinstance(answer, v2.BatchReadResponse)
    assert len(answer.entries) == 1


def test_a_read_only_bookie_takes_recovery_alone_and_only_while_there_is_space(room: Room) -> None:
    room.guard.measured([Usage(total=100 * GIB, free=2 * GIB)])
    high = adds(1, [1], flags=RequestFlag.HIGH_PRIORITY)
    plain_recovery = adds(1, [2], flags=RequestFlag.RECOVERY_ADD)
    assert room.codes(adds(1, [0]) + high + plain_recovery) == [Code.READ_ONLY, Code.READ_ONLY, Code.OK]
    assert room.codes(read(1, 1)) == [Code.OK]
    room.guard.measured([Usage(total=100 * GIB, free=GIB - 1)])
    assert room.codes(high) == [Code.READ_ONLY]
    room.guard.measured([Usage(total=100 * GIB, free=90 * GIB)])
    assert room.codes(adds(1, [0])) == [Code.OK]


def test_one_call_makes_a_bounded_answer_and_goes_on_where_it_stopped(room: Room) -> None:
    room.ask(adds(1, range(50), bytes(50_000)))
    asked = b"".join(read(1, entry) for entry in range(50)) + v2.BatchReadFrame(1, 0, 1, 1, 1).encode() * 5
    answers, calls = b"", 0
    while asked:
        served = room.ask(asked)
        assert served.size <= RESPONSE_BYTES + MAX_FRAME
        answers += b"".join(served.at_once)
        asked, calls = asked[served.position :], calls + 1
    assert calls == 3
    assert [entry for _, code, _, entry in codes(answers[: 50 * 50_064]) if code == Code.OK] == list(range(50))


def test_an_add_among_many_reads_does_not_keep_their_bytes(room: Room) -> None:
    room.ask(read(5, 0) * 2000 + adds(1, [0]))
    assert room.storage.take().size == len(adds(1, [0]))
    assert room.storage.stats().memtable_bytes < 2000


REQUESTS = st.sampled_from(
    [
        adds(1, [0, 1, 2]),
        adds(1, [5]),
        adds(2, [0], key=OTHER_KEY),
        adds(2, [0]),
        adds(1, [9], flags=RequestFlag.HIGH_PRIORITY),
        read(1, 0),
        read(1, 0) + read(1, 1) + read(1, 2),
        read(1, -1),
        read(1, -1) + read(1, 0),
        read(3, 0),
        read(2, 0, KEY),
        v2.BatchReadFrame(1, 0, 1, 10, 1000).encode(),
        v2.AuthFrame(b"\x0a\x01x").encode(),
        adds(1, [-3]),
        read(1, 1, version=0),
    ]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(REQUESTS, max_size=12), st.lists(st.integers(1, 60), max_size=40))
def test_answers_do_not_depend_on_how_the_bytes_arrive(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], cuts: list[int]
) -> None:
    """The dumb twin gets one frame a call."""
    data = b"".join(parts)

    def play(pieces: list[bytes]) -> bytes:
        room = make_room(tmp_path_factory.mktemp("room"))
        rest, answers = b"", b""
        for piece in pieces:
            served = room.ask(rest + piece)
            rest = (rest + piece)[served.position :]
            answers += b"".join([*served.at_once, *served.when_durable])
        room.storage.close(clean=False)
        assert not rest
        return answers

    def frames_of(data: bytes) -> list[bytes]:
        found, position = [], 0
        while position < len(data):
            stop = position + 4 + int.from_bytes(data[position : position + 4], "big")
            found.append(data[position:stop])
            position = stop
        return found

    pieces, position = [], 0
    for cut in cuts:
        pieces.append(data[position : position + cut])
        position += cut
    pieces.append(data[position:])
    assert sorted(frames_of(play(pieces))) == sorted(frames_of(play(frames_of(data))))


@pytest.mark.parametrize("version", [0, 2])
def test_without_reads_it_ends_before_the_first_and_goes_on_there(room: Room, version: int) -> None:
    room.ask(adds(1, range(3)))
    for asked in (read(1, 0, version=version), v2.BatchReadFrame(1, 0, 1, 1, 99).encode(), read(1, 0, KEY)):
        data = adds(1, [3]) + asked + adds(2, [0])
        served = room.wire.serve(data, reads=False)
        assert (served.position, served.read_is_next, served.reads) == (len(adds(1, [3])), True, False)
        rest = room.wire.serve(data[served.position :])
        assert (rest.position, rest.read_is_next, rest.reads) == (len(data) - served.position, False, True)
    auth = v2.AuthFrame(b"").encode()
    served = room.wire.serve(auth + adds(1, [4]), reads=False)
    assert (served.position, served.read_is_next) == (len(auth + adds(1, [4])), False)


def test_short_answers_leave_the_rest_for_later_and_always_have_an_entry(tmp_path: Path) -> None:
    room = make_room(tmp_path, max_batch_bytes=1 << 20)
    room.ask(adds(1, range(10), bytes(30_000)))
    batch = v2.BatchReadFrame(1, 0, 1, 10, 1 << 20).encode()
    assert room.wire.serve(batch).size > 300_000
    assert 60_000 < room.wire.serve(batch, short=True).size < SHORT_BYTES
    reads = b"".join(read(1, entry) for entry in range(10))
    served = room.wire.serve(reads, short=True)
    assert 0 < served.position < len(reads) and served.size < 2 * SHORT_BYTES and served.need == 0
    room.ask(adds(2, [0], bytes(MAX_FRAME - 100)))
    (answer,) = room.wire.serve(v2.BatchReadFrame(2, 0, 1, 10, 1 << 20).encode(), short=True).at_once
    assert len(answer) > MAX_FRAME - 100
    room.storage.close(clean=False)


def test_fences_of_one_buffer_that_wait_for_looks_are_counted(tmp_path: Path) -> None:
    room = make_room(tmp_path, fences=1)
    assert room.codes(read(1, 0, KEY)) == [Code.NO_ENTRY]
    served = room.ask(b"".join(read(ledger, 0, KEY) for ledger in range(2, 12)))
    assert len(served.to_look) == LOOKS
    assert [code for _, code, _, _ in codes(b"".join(served.when_durable))] == [Code.TOO_MANY_REQUESTS] * (10 - LOOKS)
    room.storage.close(clean=False)


def test_beyond_the_bound_of_ledgers_without_metadata_a_first_add_waits_for_a_look(room: Room) -> None:
    room.service.looks = lambda: True
    room.storage.identities.bound_unmade(2)
    recovery = adds(9, [0], flags=RequestFlag.RECOVERY_ADD | RequestFlag.HIGH_PRIORITY)
    assert room.codes(adds(1, [0]) + adds(2, [0])) == [Code.OK, Code.OK]
    served = room.ask(adds(3, [0]) + recovery + adds(1, [1]))
    assert served.to_look.keys() == {3, 9, 1} and not served.when_durable
    for ledger, said, code in (
        (3, Verdict.GONE, Code.FENCED),
        (9, Verdict.GONE, Code.TOO_MANY_REQUESTS),
        (9, Verdict.ADMIT, Code.OK),
        (3, Verdict.ADMIT, Code.OK),
    ):
        settled = room.wire.settle(b"".join(served.to_look[ledger]), said)
        assert [code for _, code, _, _ in codes(b"".join([*settled.at_once, *settled.when_durable]))] == [code]
    assert set(room.storage.ledger_ids()) == {1, 2, 3, 9}


@pytest.mark.rule("Q14")
def test_q14_beyond_the_bound_recovery_is_served_of_a_ledger_that_a_look_found_in_recovery(room: Room) -> None:
    room.service.looks = lambda: True
    room.storage.identities.bound_unmade(2)
    assert room.codes(adds(1, [0]) + adds(2, [0])) == [Code.OK, Code.OK]
    served = room.ask(adds(9, [0], flags=RequestFlag.RECOVERY_ADD | RequestFlag.HIGH_PRIORITY))
    settled = room.wire.settle(b"".join(served.to_look[9]), Verdict.REFUSE)
    assert [code for _, code, _, _ in codes(b"".join([*settled.at_once, *settled.when_durable]))] == [Code.OK]


def test_what_waited_for_a_look_is_answered_as_far_as_there_is_time_and_no_further_than_a_response_may_be(
    room: Room,
) -> None:
    """512 reads of one ledger's end were answered in one call: 2.6 GB, in which nobody else was served."""
    for entry in range(2):
        room.ask(adds(1, [entry], b"x" * 20_000))
    frames = read(1, -1)
    settled = room.wire.settle(frames * 9, Verdict.ADMIT, has_time=lambda: False)
    assert settled.position == len(frames) and len(codes(b"".join(settled.at_once))) == 1
    settled = room.wire.settle(frames * 9, Verdict.ADMIT, short=True)
    assert settled.position == len(frames) * 4 and SHORT_BYTES <= settled.size < SHORT_BYTES + 21_000
    assert room.wire.settle(frames * 9, Verdict.ADMIT).position == len(frames) * 9


def test_beyond_it_nothing_is_taken_of_an_unknown_ledger_while_nobody_can_look(room: Room) -> None:
    """60,000 invented ledgers came while the metadata was away. What is stored here goes on."""
    room.storage.identities.bound_unmade(2)
    recovery = adds(9, [0], flags=RequestFlag.RECOVERY_ADD | RequestFlag.HIGH_PRIORITY)
    assert room.codes(adds(1, [0]) + adds(2, [5])) == [Code.OK, Code.OK]
    room.storage.identities.missed_looks()
    served = room.ask(
        adds(3, [0]) + adds(3, [1], flags=RequestFlag.HIGH_PRIORITY) + recovery + adds(1, [1]) + adds(2, [6])
    )
    assert served.to_look.keys() == {3, 9}
    assert [code for _, code, _, _ in codes(b"".join(served.when_durable))] == [Code.OK, Code.OK]
    for ledger, count in ((3, 2), (9, 1)):
        settled = room.wire.settle(b"".join(served.to_look[ledger]), Verdict.UNKNOWN)
        assert not settled.when_durable
        assert [code for _, code, _, _ in codes(b"".join(settled.at_once))] == [Code.TOO_MANY_REQUESTS] * count
    settled = room.wire.settle(b"".join(served.to_look[3]), Verdict.ADMIT)
    assert [code for _, code, _, _ in codes(b"".join(settled.when_durable))] == [Code.OK, Code.OK]
    assert set(room.storage.ledger_ids()) == {1, 2, 3}
