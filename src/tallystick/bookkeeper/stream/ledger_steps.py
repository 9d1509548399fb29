"""The steps from one ledger of a stream to the next: ``RollOverCore`` asks for each, and hears what came of it."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.leases import Lease
from tallystick.bookkeeper.stream.marks import make_ledger
from tallystick.bookkeeper.stream.owned_list import OwnedList, rolled
from tallystick.bookkeeper.stream.rollover import Action, Failure, LedgerLook, RollOverCore
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import StreamLedger
from tallystick.bookkeeper.wire.values import NO_ENTRY, LedgerId, LedgerMetadata
from tallystick.errors import LedgerFenced, NoSuchLedger, StreamClosed, StreamFenced, TallyError


class LedgerSteps:
    """See the module. One step at a time. ``ended`` is the ledger that is closed and not yet listed so."""

    __slots__ = ("_context", "_core", "_is_stopped", "_lease", "_next", "_settings", "_stored_list", "_stream",
                 "ended", "why")  # fmt: skip

    def __init__(
        self,
        context: StreamContext,
        stream: str,
        settings: StreamSettings,
        core: RollOverCore,
        lease: Lease,
        stored_list: OwnedList,
    ) -> None:
        self._context, self._stream, self._settings = context, stream, settings
        self._core, self._lease, self._stored_list = core, lease, stored_list
        self.ended: StreamLedger | None = None
        self.why: TallyError | None = None  # the last one that failed
        self._next: LedgerWriter | None = None
        self._is_stopped = False

    async def end(self, writer: LedgerWriter | None) -> list[Action]:
        """Close the ledger at its LAC."""
        assert writer is not None, "a ledger is open"
        try:
            await writer.close()
        except TallyError as error:
            return self._core.not_ended(self._failed(error), self._now())
        return self._core.ended(writer.lac, writer.length, self._now())

    async def look(self, ledger: LedgerId, confirmed: int) -> list[Action]:
        """Who fenced the ledger: another owner, or a repairer? Of its entries ``confirmed`` are certain."""
        try:
            metadata = await self._metadata_if_ours(ledger)
        except TallyError as error:
            return self._core.not_looked(self._failed(error), self._now())
        if metadata is None or (metadata.is_closed and metadata.last_entry + 1 < confirmed):
            look, last, length = LedgerLook.NOT_OURS, NO_ENTRY, 0
        else:
            look = LedgerLook.CLOSED if metadata.is_closed else LedgerLook.OPEN
            last, length = metadata.last_entry, metadata.length
        self._emit("fenced stream looked at", ledger=ledger, look=look.value, last_entry=last)
        return self._core.looked(look, last, length, self._now())

    async def _metadata_if_ours(self, ledger: LedgerId) -> LedgerMetadata | None:
        """Returns None if lease or list are not ours, or there is no such ledger."""
        if not await self._context.leases.is_held(self._lease) or not await self._stored_list.is_unchanged():
            return None
        try:
            return (await self._context.context.driver.read_ledger(ledger)).value
        except NoSuchLedger:
            return None

    async def make(self) -> list[Action]:
        """Make the next ledger."""
        context = self._context
        try:
            self._next = await make_ledger(
                context.ledgers,
                context.catalog,
                self._stream,
                context.leases.owner,
                self._settings,
                self._core.ledger,
                self._lease.before,
            )
            self._require_open()
        except TallyError as error:
            return self._core.not_made(self._failed(error), self._now())
        return self._core.made(self._next.id, self._now())

    async def store(self, ledger: LedgerId) -> list[Action]:
        """Store the end of the one and the next one in the list."""
        ended = self.ended
        assert ended is not None, "it was settled"
        try:
            self._require_open()
            await self._stored_list.change(rolled(ended, ledger))
        except StreamFenced as error:
            self._context.deletions.add(self._stream, [ledger])  # no list can have it any more
            return self._core.not_listed(self._failed(error), self._now())
        except TallyError as error:
            return self._core.not_listed(self._failed(error), self._now())
        if not ended.entries:
            self._context.deletions.add(self._stream, [ended.ledger])
        return self._core.listed(self._now())

    def take_next(self) -> LedgerWriter:
        """Returns the writer of the ledger that is listed now."""
        writer, self._next, self.ended = self._next, None, None
        assert writer is not None and writer.id == self._core.ledger, "it was made"
        return writer

    def stop(self) -> None:
        """Go no further: a ledger that was made is not listed, and its client lets go of it."""
        self._is_stopped = True
        if self._next is not None:
            self._next.abort()

    def _require_open(self) -> None:
        """Raises StreamClosed once it was stopped."""
        if self._is_stopped:
            self.stop()
            raise StreamClosed(stream=self._stream)

    def _failed(self, error: TallyError) -> Failure:
        self.why = error
        self._emit("stream step failed", phase=self._core.phase.value, reason=error)
        return failure_of(error)

    def _now(self) -> float:
        return self._context.context.clock.now()

    def _emit(self, kind: str, **fields: object) -> None:
        self._context.context.events.emit(kind, stream=self._stream, **fields)


def failure_of(error: TallyError) -> Failure:
    """Returns what an error means for a roll-over."""
    if isinstance(error, StreamFenced | LedgerFenced | NoSuchLedger):
        return Failure.FENCED
    return Failure.AWAY if error.retriable else Failure.REFUSED
