"""A bookie for tests of clients: requests and storage of production over a simulated disk, behind a script.

Each request is committed before it is answered, in the same turn. A test may answer in the bookie's place, hold answers
back, see what is stored, take it away and put other bytes there. ``stop`` and ``start`` are those of a process: what is
stored stays.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, MutableMapping
from typing import ClassVar, Final, cast

from support.machines import machine
from support.requesters import Asker
from support.workers import WorkerAtOnce
from tallystick.bookkeeper.bookie.entry_lists import EntryLists
from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.holdings import Holdings
from tallystick.bookkeeper.bookie.lac_service import LacService
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.service import Service
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.wire_v2 import WireV2
from tallystick.bookkeeper.bookie.wire_v3 import WireV3, encode_entry_list
from tallystick.bookkeeper.bookie.wires import V3_FIRST_BYTE
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.codec.frames import next_frame
from tallystick.errors import BookieUnavailable
from tallystick.runtime.network import Listener, Network
from tallystick.sim.disk import SimDisk
from tallystick.sim.storage_model import TickingClock

HANG = -1  # as a code: no answer at all
Misbehave = Callable[[v2.Request], int | None]  # a code to answer with instead, or None for the usual
Script = Callable[[v2.Request], bytes | None]  # bytes to answer with, None to say nothing, or CLOSE
ScriptV3 = Callable[[v3.Request], bytes | None]  # the same; USUAL: what production answers

SETTINGS = StorageSettings(journal_segment_bytes=1024 * 1024, state_spare_bytes=4096)
MAX_BYTES = 6 * 1024 * 1024  # of a frame, and of a batch


class FakeBookie:
    """See the module. ``script`` decides before ``misbehave``, which decides before the requests of production."""

    CLOSE: ClassVar[bytes] = b"close the connection"
    USUAL: ClassVar[bytes] = b"what production answers"

    def __init__(self, id: str, network: Network | None = None) -> None:
        self.id = id
        self.requests: list[v2.Request] = []
        self.requests_v3: list[v3.Request] = []
        self.speaks_v3 = True  # else a connection is closed on the first request of version 3, as by older bookies
        self.script: Script | None = None
        self.script_v3: ScriptV3 | None = None
        self.misbehave: Misbehave | None = None
        self.held: list[Callable[[], None]] | None = None  # a list: answers to adds wait here
        self.connections: list[asyncio.Transport] = []
        self.opened = 0  # connections so far
        self.listener: Listener | None = None
        self.keys: dict[int, bytes] = {}  # of the ledgers that are stored
        self.entries: Final = Entries(self)
        self._network = network
        self.clear()

    async def start(self) -> BookieInfo:
        """Listen. Returns what a registration says of it."""
        self._network = self._network or machine().network
        self.listener = await self._network.listen("127.0.0.1", 0, lambda: _Connection(self))
        return BookieInfo.at(*self.listener.address)

    async def stop(self) -> None:
        """As a killed process: no listener, no connections."""
        if self.listener is not None:
            await self.listener.close()
            self.listener = None
        for transport in tuple(self.connections):
            transport.abort()

    @property
    def address(self) -> tuple[str, int]:
        if self.listener is None:
            raise BookieUnavailable("not registered", bookie=self.id)
        return self.listener.address

    def say(self, data: bytes) -> None:
        """Bytes on the newest connection, asked for or not."""
        self.connections[-1].write(data)

    def release(self) -> None:
        """Send the answers that were held, and hold no more."""
        held, self.held = self.held or [], None
        for send in held:
            send()

    # What is stored.

    def clear(self) -> None:
        """Forget everything."""
        self.keys = {}
        self.storage = Storage.open(
            SimDisk(random.Random(0)),
            StorageFolders(("/journal",), ("/ledgers",)),
            SETTINGS,
            clock=TickingClock(),
            random=random.Random(0),
        )
        counts, recent = Counts(), RecentAdds()
        fences = Fences(self.storage, counts, recent, 1000, looks=lambda more: False, tell=lambda: None)
        service = Service(
            self.storage, DiskGuard(0.95), fences, counts, recent, looks=lambda: False, look_at=lambda ledger: None
        )
        self._serves = WireV2(service, max_frame_bytes=MAX_BYTES, max_batch_bytes=MAX_BYTES)
        self._polls, guard = service.polls, DiskGuard(0.95)
        lacs = LacService(self.storage, guard, counts, service.polls, looks=lambda: False)
        lists = EntryLists(
            WorkerAtOnce(), lambda runs: encode_entry_list(runs, max_bytes=MAX_BYTES), lambda error: None
        )
        holdings = Holdings(self.storage, guard, counts, lists, looks=lambda: False)
        self._serves_v3 = WireV3(service, lacs, holdings, self._serves, max_frame_bytes=MAX_BYTES)

    def put(self, ledger: int, entry: int, body: bytes, password: bytes = b"") -> None:
        """Store an entry, as recovery does; ``password`` counts for the first entry of a ledger."""
        key = self.keys.setdefault(ledger, master_key(password))
        code = self.storage.add(ledger, entry, key, body, recovery=True)
        assert code == Code.OK, code
        self._polls.added((ledger,))
        self._commit()

    def fence(self, ledger: int, password: bytes = b"") -> None:
        code = self.storage.fence(ledger, self.keys.setdefault(ledger, master_key(password)))
        assert code == Code.OK, code
        self._commit()

    @property
    def fenced(self) -> set[int]:
        """The ledgers to which ordinary adds are refused."""
        return {ledger for ledger in self.storage.ledger_ids() if self.storage.is_fenced(ledger)}

    def rekey(self, ledger: int, password: bytes) -> None:
        """Know a ledger, of which there are entries, by another password."""
        kept, self.keys[ledger] = dict(self.entries), master_key(password)
        self.keep_only(kept)

    def keep_only(self, kept: dict[tuple[int, int], bytes]) -> None:
        """Forget all other entries; fences and keys stay."""
        keys, fenced = self.keys, self.fenced
        self.clear()
        self.keys = keys
        for (ledger, entry), body in kept.items():
            self.put(ledger, entry, body)
        for ledger in fenced:
            self.fence(ledger)

    # Requests.

    def answer(self, request: v2.Request) -> bytes | None:
        """The answer's bytes; None: nothing is said."""
        self.requests.append(request)
        if self.script is not None:
            return self.script(request)
        code = self.misbehave(request) if self.misbehave else None
        if code is None:
            return self.default(request)
        if code == HANG:
            return None
        assert not isinstance(request, v2.AuthFrame)
        if isinstance(request, v2.BatchReadFrame):
            return v2.encode_batch_response(request, Code(code), [])
        return v2.encode_response(request, Code(code))

    def default(self, request: v2.Request) -> bytes:
        """What production answers."""
        served = self._serves.serve(request.encode())
        assert served.refusal is None and not served.to_look, served
        if not isinstance(request, v2.AuthFrame) and request.master_key and request.ledger in self.storage.ledger_ids():
            self.keys.setdefault(request.ledger, request.master_key)
        self._commit()
        return b"".join((*served.at_once, *served.when_written, *served.when_durable))

    def answer_v3(self, request: v3.Request, deliver: Callable[[bytes], None]) -> bytes | None:
        """The answer's bytes; None: nothing is said now, but it may be delivered later."""
        self.requests_v3.append(request)
        answer = FakeBookie.USUAL if self.script_v3 is None else self.script_v3(request)
        return self.default_v3(request, deliver) if answer is FakeBookie.USUAL else answer

    def default_v3(self, request: v3.Request, deliver: Callable[[bytes], None]) -> bytes:
        """What production answers."""
        assert not isinstance(request, v3.UnknownRequest)
        served = self._serves_v3.serve(v3.encode_request(request))
        assert served.refusal is None and not served.to_look, served
        if isinstance(request, v3.AddRequest | v3.ReadRequest) and request.master_key:
            self.keys.setdefault(request.ledger, request.master_key)
        self._commit()
        for begin in served.later:
            begin(Asker(), deliver)
        return b"".join((*served.at_once, *served.when_written, *served.when_durable))

    def _commit(self) -> None:
        if self.storage.staged:
            self.storage.commit(self.storage.take())


class Entries(MutableMapping[tuple[int, int], bytes]):
    """What a bookie stores: (ledger, entry) to the bytes of the entry, header and digest included."""

    def __init__(self, bookie: FakeBookie) -> None:
        self._bookie = bookie

    def __getitem__(self, place: tuple[int, int]) -> bytes:
        code, body = self._bookie.storage.read(*place)
        if code != Code.OK:
            raise KeyError(place)
        return body

    def __setitem__(self, place: tuple[int, int], body: bytes) -> None:
        self._bookie.put(*place, body)

    def __delitem__(self, place: tuple[int, int]) -> None:
        kept = dict(self)
        del kept[place]
        self._bookie.keep_only(kept)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        storage = self._bookie.storage
        for ledger in storage.ledger_ids():
            for entry in range(storage.last_entry(ledger) + 1):
                if storage.read(ledger, entry)[0] == Code.OK:
                    yield ledger, entry

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Connection(asyncio.Protocol):
    def __init__(self, bookie: FakeBookie) -> None:
        self.bookie, self.data = bookie, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.bookie.connections.append(self.transport)
        self.bookie.opened += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.bookie.connections.remove(self.transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        position, answers = 0, []
        while (bounds := next_frame(self.data, position, len(self.data))) is not None:
            body, position = self.data[bounds[0] : bounds[1]], bounds[1]
            request: v2.Request | v3.Request
            if body[0] == V3_FIRST_BYTE:
                request = v3.decode_request(body)
                answer = self.bookie.answer_v3(request, self._deliver) if self.bookie.speaks_v3 else FakeBookie.CLOSE
            else:
                request = v2.decode_request(body)
                answer = self.bookie.answer(request)
            if answer is FakeBookie.CLOSE:
                self.transport.abort()
                return
            is_add = isinstance(request, v2.AddFrame | v3.AddRequest)
            if answer is not None and is_add and self.bookie.held is not None:
                self.bookie.held.append(lambda answer=answer: self.transport.write(answer))  # type: ignore[misc]
            else:
                answers.append(answer or b"")
        self.data = self.data[position:]
        self.transport.write(b"".join(answers))

    def _deliver(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
