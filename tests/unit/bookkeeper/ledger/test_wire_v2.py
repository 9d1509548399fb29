"""Requests of version 2 as the reference has them, and which of its answers are whose."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from support.links import KEY, ok
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.wire_v2 import ClientWireV2
from tallystick.bookkeeper.ledger.wires import BatchRequest, ReadRequest
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.frames import Buffer
from tallystick.errors import RemoteProtocolError

Told = tuple[Owner, Code, list[int], list[bytes]]


class Connection:
    """A wire, what is outstanding, and what was reported."""

    def __init__(self) -> None:
        self.outstanding: OutstandingCore[Owner] = OutstandingCore()
        self.told: list[Told] = []
        self.wire = ClientWireV2(self.outstanding, self._report)

    def _report(self, owner: Owner, code: Code, entries: list[int], data: object) -> None:
        assert isinstance(data, Iterable)
        self.told.append((owner, code, entries, [bytes(part) for part in data]))

    def reads(self, ledger: int, *entries: int) -> ReadRun:
        run = ReadRun(entries)
        self.outstanding.sent(self.outstanding.lane(self.wire.reads_name(ledger), run), entries, 0.0, 1.0)
        return run

    def ask(self, request: ReadRequest | BatchRequest) -> tuple[ReadRun, bytes]:
        """Its owner, who is any, and its bytes."""
        owner, (key, piece) = ReadRun([request.entry]), self.wire.request(request)
        self.outstanding.add_request(key, request.entry, owner, 0.0, 1.0)
        return owner, b"".join(map(bytes, piece.parts))

    def hear(self, data: bytes) -> None:
        """Whole frames."""
        buffer, position = bytearray(data), 0
        while position < len(buffer):
            if (stop := self.wire.run(buffer, position, len(buffer))) == position:
                stop = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
                self.wire.take_response(bytes(buffer[position + 4 : stop]))
            position = stop


def found(ledger: int, entry: int, data: Buffer, code: Code = Code.OK) -> bytes:
    return v2.encode_response(v2.ReadFrame(ledger, entry), code, data)


async def test_requests_are_the_references() -> None:
    connection = Connection()
    assert connection.ask(ReadRequest(7, 3))[1] == v2.ReadFrame(7, 3).encode()
    assert connection.ask(ReadRequest(7, -1, KEY))[1] == v2.ReadFrame(7, -1, KEY, v2.RequestFlag.FENCE).encode()
    both = v2.RequestFlag.FENCE | v2.RequestFlag.HIGH_PRIORITY
    assert connection.ask(ReadRequest(7, 3, KEY, high_priority=True))[1] == v2.ReadFrame(7, 3, KEY, both).encode()
    for number in (1, 2):
        assert connection.ask(BatchRequest(7, 3, 10, 4096))[1] == v2.BatchReadFrame(7, 3, number, 10, 4096).encode()
    [piece] = [connection.wire.reads(connection.wire.reads_name(7), 7, [3, 5])]
    assert b"".join(map(bytes, piece.parts)) == v2.ReadFrame(7, 3).encode() + v2.ReadFrame(7, 5).encode()


async def test_a_row_of_good_answers_is_reported_by_owner_and_a_lone_request_in_it_gets_its_own() -> None:
    connection = Connection()
    first, second = connection.reads(1, 0, 1), connection.reads(1, 9)
    alone, _ = connection.ask(ReadRequest(1, 5))
    elsewhere = connection.reads(2, 0)
    connection.hear(
        found(1, 0, b"0" * 40)
        + found(1, 1, b"1" * 40)
        + found(1, 5, b"5" * 40)
        + found(1, 9, b"9" * 40)
        + found(2, 0, b"", Code.NO_ENTRY)
    )
    assert connection.told == [
        (first, Code.OK, [0, 1], [b"0" * 40, b"1" * 40]),
        (alone, Code.OK, [5], [b"5" * 40]),
        (second, Code.OK, [9], [b"9" * 40]),
        (elsewhere, Code.NO_ENTRY, [0], []),
    ]
    assert connection.outstanding.take_all() == []


async def test_q12_a_fence_is_not_settled_by_the_response_to_a_plain_read_of_the_entry() -> None:
    connection = Connection()
    fence, _ = connection.ask(ReadRequest(1, -1, KEY))
    plain, run = connection.ask(ReadRequest(1, -1))[0], connection.reads(1, -1)
    connection.hear(found(1, -1, b"1" * 40))
    connection.hear(found(1, -1, b"2" * 40))
    assert [report[0] for report in connection.told] == [run, plain], "the fence is not durable yet"
    connection.hear(found(1, -1, b"3" * 40))
    assert connection.told[2] == (fence, Code.OK, [-1], [b"3" * 40])
    assert not connection.wire._fences, "a client that recovers ledgers all day keeps nothing of them"
    connection.ask(ReadRequest(1, -1))
    connection.hear(found(1, -1, b"4" * 40))
    with pytest.raises(RemoteProtocolError):
        connection.hear(found(1, -1, b"5" * 40))


@pytest.mark.parametrize("plain", ["a run of reads", "a lone read"])
@pytest.mark.parametrize("codes", [(Code.OK, Code.NO_ENTRY), (Code.NO_ENTRY, Code.OK)])
async def test_q15_a_no_that_may_be_from_before_the_fence_is_unknown_to_who_fences(
    plain: str, codes: tuple[Code, Code]
) -> None:
    connection = Connection()
    if plain == "a run of reads":
        connection.reads(1, 5)
    else:
        connection.ask(ReadRequest(1, 5))
    fences = [connection.ask(ReadRequest(1, 5, KEY, high_priority=True))[0] for _ in range(2)]
    for code in (*codes, codes[1]):
        connection.hear(found(1, 5, b"5" * 40 if code == Code.OK else b"", code))
    assert connection.told[1:] == [(fence, Code.AMBIGUOUS, [5], []) for fence in fences]
    fence, _ = connection.ask(ReadRequest(1, 5, KEY))
    connection.hear(found(1, 5, b"", Code.NO_ENTRY))
    assert connection.told[3] == (fence, Code.NO_ENTRY, [5], []), "alone it is nobody else's"


async def test_batches_are_told_apart_by_their_numbers() -> None:
    connection = Connection()
    one, other = (connection.ask(BatchRequest(1, 0, 10, 4096))[0] for _ in range(2))
    connection.hear(v2.encode_batch_response(v2.BatchReadFrame(1, 0, 2, 10, 4096), Code.OK, [b"a", b"bc"]))
    connection.hear(v2.encode_batch_response(v2.BatchReadFrame(1, 0, 1, 10, 4096), Code.NO_LEDGER))
    assert connection.told == [(other, Code.OK, [0], [b"a", b"bc"]), (one, Code.NO_LEDGER, [0], [])]


@pytest.mark.parametrize("answer", [ok(1, 0), found(1, 4, b"x" * 40), v2.AuthFrame(b"").encode()])
async def test_what_nobody_asked_for_is_refused(answer: bytes) -> None:
    connection = Connection()
    connection.reads(1, 0)
    with pytest.raises(RemoteProtocolError):
        connection.hear(answer)
    assert connection.told == []
