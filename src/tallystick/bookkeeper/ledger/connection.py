"""The bookies as a client talks to them: one connection each, or some, made when first needed.

Of several a ledger's id says which is its own: what needs the order of two requests goes over one.

By default a second one speaks version 3, for what version 2 lacks: made, too, when that is first needed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from tallystick.bookkeeper.ledger import wire_v2, wire_v3
from tallystick.bookkeeper.ledger.add_channel import AddChannel, AddListener
from tallystick.bookkeeper.ledger.batch_reads import BatchReads
from tallystick.bookkeeper.ledger.bookie_peer import BookiePeer, Resolve
from tallystick.bookkeeper.ledger.counts import ClientCounts
from tallystick.bookkeeper.ledger.handshake import Handshaker, Offers, no_offers
from tallystick.bookkeeper.ledger.heard_lacs import HeardLacs
from tallystick.bookkeeper.ledger.identity import (
    Belief,
    Identify,
)
from tallystick.bookkeeper.ledger.owners import BookieResponse, Waiter
from tallystick.bookkeeper.ledger.peer_times import PeerTimes
from tallystick.bookkeeper.ledger.read_channel import ReadChannel
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.ledger.slow_bookies import NEVER, SlowBookies
from tallystick.bookkeeper.ledger.wire_v2 import ClientWireV2
from tallystick.bookkeeper.ledger.wire_v3 import ClientWireV3
from tallystick.bookkeeper.ledger.wires import (
    SPACE,
    BatchRequest,
    BookieRequest,
    EntryListRequest,
    ForceRequest,
    LongPollRequest,
    ReadLacRequest,
    ReadRequest,
    SpaceRequest,
    WireFactory,
    WriteLacRequest,
)
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER, Digest
from tallystick.bookkeeper.wire.entry_list import EntryList
from tallystick.bookkeeper.wire.values import BookieId, DigestType, EntryId, LedgerId, Slot
from tallystick.errors import BookieUnavailable, NoSuchLedger, UsageError
from tallystick.runtime.outside import Outside
from tallystick.runtime.turn_wakes import TurnWakes

SILENT_S = 10.0  # so long repair asks nothing of a bookie that did not answer it: twice the time that it waited
MOST_WOKEN = 64  # of those who follow, in one turn: each reads what came and asks for more, some 0.1 ms
PeerKey = tuple[BookieId, int]  # a bookie, and which of the connections to it


class BookieSpace(NamedTuple):
    """The bytes of a bookie's disks."""

    total_bytes: int
    free_bytes: int


class BookieClient:
    """Send requests to bookies by id. ``resolve`` gives host and port, or raises BookieUnavailable.

    ``identify`` reads who a bookie is, and where, for responses that count: those to adds, and ``proven`` ones; without
    it whoever answers is believed. ``offers`` reads by what a bookie lets a client show who it is. Must be made and
    used on one running event loop. Call ``close`` at the end.
    """

    def __init__(
        self,
        outside: Outside,
        resolve: Resolve,
        settings: ClientSettings,
        *,
        identify: Identify | None = None,
        offers: Offers = no_offers,
    ) -> None:
        self.settings = settings
        self._identify = identify
        self.batch_reads = BatchReads(exist=settings.wire != "v3")  # kept by readers
        self._lanes = lanes = itertools.count(1)  # of requests by version 3
        self.heard_lacs = HeardLacs(lanes)
        self.striped_pieces = itertools.count()  # numbers those that readers ask for
        self.slow = SlowBookies(outside.clock, settings.ask_last_s)  # kept by readers, too
        self.silent = SlowBookies(outside.clock, SILENT_S)  # kept by repair
        self.wakes = TurnWakes(MOST_WOKEN)  # of those who follow
        self.counts = ClientCounts()
        self.times = PeerTimes(outside.clock, settings.slow_add_s) if settings.slow_add_s else None
        self._outside, self._resolve = outside, resolve
        self._handshaker = Handshaker(outside, settings.security, offers)
        self._v3 = partial(ClientWireV3, lanes=lanes, note_lac=self.heard_lacs.note)
        self._numbers = itertools.count(1)  # of connections
        self._peers: dict[PeerKey, BookiePeer] = {}
        self._v3_peers = self._peers if settings.wire == "v3" else dict[PeerKey, BookiePeer]()
        self._closed = False

    async def read(
        self,
        bookie: BookieId,
        ledger: LedgerId,
        entry: EntryId,
        *,
        master_key: bytes | None = None,
        high_priority: bool = False,
        proven: bool = False,
    ) -> BookieResponse:
        """Read one entry, whatever the response's code; ``entry`` -1 asks for the highest one stored.

        With a key the ledger is fenced first. ``proven``: a "no" counts, or a fence, so nobody but this bookie may have
        said it. Raises BookieUnavailable, also if nobody can prove that; RequestTimeout.
        """
        request = ReadRequest(ledger, entry, master_key, high_priority)
        if proven:
            return await self._peer(bookie, ledger).ask_proven(request, self.settings.read_timeout_s)
        return await self._ask(bookie, request)

    def ask_read(self, bookie: BookieId, ledger: LedgerId, entry: EntryId) -> Waiter:
        """Read as a plain ``read`` does; returns a future of the response. Cancel it to give the request up."""
        return self._ask(bookie, ReadRequest(ledger, entry))

    def read_run(self, bookie: BookieId, ledger: LedgerId, entries: Sequence[EntryId]) -> ReadRun:
        """Send plain reads of many entries. Close the ReadRun when leaving before it is done."""
        run, link = ReadRun(entries), self._peer(bookie, ledger).link()
        lane = link.add_read_lane(ledger, run)
        link.send_reads(lane, ledger, entries, self.settings.read_timeout_s)
        run.leave = lambda: link.forget(lane)
        return run

    def read_channel(self, bookie: BookieId, ledger: LedgerId, digest: Digest) -> ReadChannel:
        """Open a channel for plain reads of one entry each, which are checked by ``digest``."""
        connect = self._peer(bookie, ledger).link
        return ReadChannel(connect, ledger, digest, self.counts, self._outside.clock, self.settings)

    async def batch_read(
        self, bookie: BookieId, ledger: LedgerId, first: EntryId, *, max_count: int, max_bytes: int
    ) -> BookieResponse:
        """Read up to ``max_count`` entries from ``first``, whatever the response's code.

        A good one has at least one, even if that is longer than ``max_bytes``. Raises BookieUnavailable (also from a
        bookie that does not know batch reads: it closes the connection), RequestTimeout.
        """
        return await self._ask(bookie, BatchRequest(ledger, first, max_count, max_bytes))

    # What only version 3 has. A client of "v2" raises UsageError; a bookie that lacks it costs a BookieUnavailable.

    def long_poll(self, bookie: BookieId, ledger: LedgerId, previous_lac: EntryId, *, wait_s: float) -> Waiter:
        """Ask for the LAC once it is beyond ``previous_lac``, or after ``wait_s``, as ``LongPollRequest`` says."""
        request = LongPollRequest(ledger, previous_lac, int(wait_s * 1000))
        return self._ask_v3(bookie, request, wait_s + self.settings.read_timeout_s)

    def read_lac(self, bookie: BookieId, ledger: LedgerId) -> Waiter:
        """Ask how far a ledger goes, as ``ReadLacRequest`` says."""
        return self._ask_v3(bookie, ReadLacRequest(ledger), self.settings.read_timeout_s)

    def write_lac(self, bookie: BookieId, ledger: LedgerId, make: Callable[[], WriteLacRequest | None]) -> Waiter:
        """Tell the LAC of a ledger once the connection takes it. ``make`` is called then; if it returns None, nothing
        is sent and the waiter is cancelled."""
        return self._v3_peer(bookie, ledger).link().ask_late(make, self.settings.add_timeout_s)

    def force(self, bookie: BookieId, ledger: LedgerId) -> Waiter:
        """Make durable what the bookie has acknowledged on the connection of ``deferred_adds``."""
        return self._ask_v3(bookie, ForceRequest(ledger), self.settings.add_timeout_s)

    async def entry_list(self, bookie: BookieId, ledger: LedgerId) -> EntryList:
        """Return which entries of a ledger a bookie has, ``proven`` as a read is.

        Raises NoSuchLedger, BookieUnavailable, RequestTimeout, RemoteProtocolError.
        """
        peer = self._v3_peer(bookie, ledger)
        response = await peer.ask_proven(EntryListRequest(ledger), self.settings.read_timeout_s)
        if response.code == Code.NO_LEDGER:
            raise NoSuchLedger("the bookie has nothing of it", ledger=ledger, bookie=bookie)
        self._expect_ok(response, bookie, "list its entries")
        listed = EntryList(response.entries[0])
        for _ in listed.checks():  # as long as a frame may be they take half a second
            await asyncio.sleep(0)
        return listed

    async def bookie_space(self, bookie: BookieId) -> BookieSpace:
        """Return the bytes of a bookie's disks. Raises BookieUnavailable, RequestTimeout."""
        response = await self._ask_v3(bookie, SpaceRequest(), self.settings.read_timeout_s)
        self._expect_ok(response, bookie, "say how much space it has")
        return BookieSpace(*SPACE.unpack(response.entries[0]))

    async def may_administer(self, bookie: BookieId) -> bool:
        """Ask whether a bookie takes this client for an administrator; one that knows no permissions takes everybody.

        Raises BookieUnavailable, RequestTimeout.
        """
        response = await self._ask_v3(bookie, SpaceRequest(as_administrator=True), self.settings.read_timeout_s)
        if response.code == Code.UNAUTHORIZED:
            return False
        self._expect_ok(response, bookie, "say who may administer it")
        return True

    def deferred_adds(
        self,
        bookie: BookieId,
        ledger: LedgerId,
        listener: AddListener,
        slot: Slot = 0,
        belief: Belief | None = None,
        number: int | None = None,
    ) -> AddChannel:
        """Open a channel as ``adds`` does, for frames with DEFERRED_FLAG: by version 3, and before ``force``."""
        return self._channel(self._v3_peer(bookie, ledger), ledger, listener, slot, belief, number)

    def most_payload_bytes(self, digest: DigestType, *, deferred_sync: bool = False) -> int:
        """Return how long an entry may be, so that its ADD is no longer than a frame, be it one of recovery."""
        by_v3 = deferred_sync or self.settings.wire == "v3"
        return _most_payload_bytes(self.settings.max_frame_bytes, digest, by_v3=by_v3)

    def require_v3(self) -> None:
        """Raises UsageError for a client that speaks version 2 alone."""
        if self.settings.wire == "v2":
            raise UsageError(
                'this needs version 3 of the protocol, and the client was made with wire="v2"; "auto" has both'
            )

    def lacks_v3(self, bookie: BookieId, ledger: LedgerId) -> bool:
        """Whether the bookie closed a connection on a request of version 3 a while ago: version 2 serves it all the
        same. Never of a client that speaks one version alone."""
        peer = self._v3_peers.get(self._key(bookie, ledger))
        return peer is not None and peer.lacks_v3

    def v3_connection(self, bookie: BookieId, ledger: LedgerId) -> int:
        """Return the number of the connection that a ledger's next request of version 3 goes over, as ``connection``
        does."""
        peer = self._v3_peer(bookie, ledger)
        peer.link()
        return peer.connection

    @staticmethod
    def _expect_ok(response: BookieResponse, bookie: BookieId, what: str) -> None:
        if response.code != Code.OK:
            raise BookieUnavailable(f"the bookie does not {what}: {response.code.name}", bookie=bookie)

    def registrations_changed(self) -> None:
        """Hear that another process may be registered as a bookie that this client is connected to."""
        for peer in (*self._peers.values(), *self._v3_peers.values()):
            peer.registrations_changed()

    def registered(self, bookies: RegisteredBookies) -> None:
        """End connections to processes whose bookies are registered elsewhere."""
        for peer in (*self._peers.values(), *self._v3_peers.values()):
            if (info := bookies.find(peer.bookie)) is not None and info.address is not None:
                peer.registered_at(info.address)

    def now(self) -> float:
        """Return the time of this client's clock."""
        return self._outside.clock.now()

    def connection(self, bookie: BookieId, ledger: LedgerId) -> int:
        """Return the number of the connection that a ledger's next request to this bookie goes over: later ones of the
        client have higher numbers."""
        peer = self._peer(bookie, ledger)
        peer.link()
        return peer.connection

    def adds(
        self,
        bookie: BookieId,
        ledger: LedgerId,
        listener: AddListener,
        slot: Slot = 0,
        belief: Belief | None = None,
        number: int | None = None,
    ) -> AddChannel:
        """Open a channel for many ADDs of one ledger to one bookie; ``belief`` is that of an earlier channel to it.

        ``number`` is that of the channel to another bookie that is sent the same frames: then they are encoded once.
        """
        return self._channel(self._peer(bookie, ledger), ledger, listener, slot, belief, number)

    def _channel(
        self,
        peer: BookiePeer,
        ledger: LedgerId,
        listener: AddListener,
        slot: Slot,
        belief: Belief | None,
        number: int | None,
    ) -> AddChannel:
        number = next(self._lanes) if number is None else number
        return AddChannel(peer, ledger, listener, slot, self.settings.add_timeout_s, belief or Belief(), number)

    def is_silent(self, bookie: BookieId) -> bool:
        """Whether the bookie did not answer to a read of a repair some seconds ago."""
        return bool(self.silent) and self.silent.since(bookie) != NEVER

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    async def close(self) -> None:
        """End all connections; what is outstanding fails as unknown."""
        self._closed = True
        for peer in (*self._peers.values(), *self._v3_peers.values()):
            await peer.close()

    def _ask(self, bookie: BookieId, request: BookieRequest) -> Waiter:
        return self._peer(bookie, request.ledger).link().ask(request, self.settings.read_timeout_s)

    def _ask_v3(self, bookie: BookieId, request: BookieRequest, timeout_s: float) -> Waiter:
        return self._v3_peer(bookie, request.ledger).link().ask(request, timeout_s)

    def _key(self, bookie: BookieId, ledger: LedgerId) -> PeerKey:
        return bookie, ledger % self.settings.connections_per_bookie

    def _peer(self, bookie: BookieId, ledger: LedgerId) -> BookiePeer:
        key = self._key(bookie, ledger)
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = self._new_peer(bookie, self._v3 if self.settings.wire == "v3" else ClientWireV2)
        return peer

    def _v3_peer(self, bookie: BookieId, ledger: LedgerId) -> BookiePeer:
        self.require_v3()
        key = self._key(bookie, ledger)
        peer = self._v3_peers.get(key)
        if peer is None:
            peer = self._v3_peers[key] = self._new_peer(bookie, self._v3)
        return peer

    def _new_peer(self, bookie: BookieId, wire: WireFactory) -> BookiePeer:
        peer = BookiePeer(
            bookie,
            outside=self._outside,
            resolve=self._resolve,
            settings=self.settings,
            identify=self._identify,
            wire=wire,
            numbers=self._numbers,
            counts=self.counts,
            times=self.times,
            handshaker=self._handshaker,
        )
        peer.is_closed = self._closed
        return peer


@lru_cache(maxsize=64)
def _most_payload_bytes(max_frame_bytes: int, digest: DigestType, *, by_v3: bool) -> int:
    """Return one number for all writers of a client."""
    head_bytes = wire_v3.ADD_HEAD_BYTES if by_v3 else wire_v2.ADD_HEAD_BYTES
    return max_frame_bytes - head_bytes - ENTRY_HEADER.size - Digest.of(digest).size
