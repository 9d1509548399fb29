"""Scripted bookies: they serve what a test puts there, over the real wire, and remember what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import pytest

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import LedgerMetadata
from tallystick.runtime.network import Listener, TcpNetwork


@dataclass
class ScriptedBookie:
    """``entries`` by (ledger, entry), as they are stored."""

    name: str
    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    asked: list[v2.Request] = field(default_factory=list)
    listener: Listener | None = None
    connections: list[asyncio.Transport] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        assert self.listener is not None
        return self.listener.address

    def answer(self, request: v2.Request) -> bytes:
        self.asked.append(request)
        if isinstance(request, v2.Read):
            wanted = request.entry
            if wanted == -1:
                wanted = max((entry for ledger, entry in self.entries if ledger == request.ledger), default=-1)
            found = self.entries.get((request.ledger, wanted))
            return v2.encode_answer(request, v2.Code.OK if found else v2.Code.NO_ENTRY, found or b"")
        assert isinstance(request, v2.BatchRead), request
        run: list[v2.Buffer] = []
        while (request.ledger, request.first + len(run)) in self.entries and len(run) < request.max_count:
            run.append(self.entries[request.ledger, request.first + len(run)])
        return v2.encode_batch_answer(request, v2.Code.OK if run else v2.Code.NO_ENTRY, run)


class _Connection(asyncio.Protocol):
    def __init__(self, bookie: ScriptedBookie) -> None:
        self.bookie, self.buffer = bookie, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.bookie.connections.append(transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4 and len(self.buffer) >= 4 + int.from_bytes(self.buffer[:4], "big"):
            end = 4 + int.from_bytes(self.buffer[:4], "big")
            request = v2.decode_request(bytes(self.buffer[4:end]))
            del self.buffer[:end]
            self.transport.write(self.bookie.answer(request))


StartBookies = Callable[[int], Awaitable[list[ScriptedBookie]]]


@pytest.fixture
async def start_bookies() -> AsyncIterator[StartBookies]:
    """Start some bookies, ``bookie-0`` and on, on ports of their own."""
    started: list[ScriptedBookie] = []

    async def start(count: int) -> list[ScriptedBookie]:
        for number in range(count):
            bookie = ScriptedBookie(f"bookie-{number}")
            bookie.listener = await TcpNetwork().listen("127.0.0.1", 0, lambda bookie=bookie: _Connection(bookie))
            started.append(bookie)
        return started

    yield start
    for bookie in started:
        assert bookie.listener is not None
        await bookie.listener.close()
        for connection in bookie.connections:
            connection.abort()
    await asyncio.sleep(0)  # the transports close their sockets at the next turn of the loop


def store(
    bookies: Iterable[ScriptedBookie], ledger: int, metadata: LedgerMetadata, payloads: list[bytes], lag: int = 1
) -> None:
    """Put the entries where a writer would, each with a LAC ``lag`` entries before it."""
    by_name = {bookie.name: bookie for bookie in bookies}
    digest = Digest.of(metadata.digest_type, metadata.password)
    length = 0
    for entry, payload in enumerate(payloads):
        length += len(payload)
        stored = digest.encode(EntryHeader(ledger, entry, max(entry - lag, -1), length), payload)
        ensemble = metadata.ensemble_of(entry)
        for copy in range(metadata.write_quorum):
            by_name[ensemble[(entry + copy) % metadata.ensemble_size]].entries[ledger, entry] = stored


@pytest.fixture(name="store")
def store_fixture() -> Callable[..., None]:
    return store
