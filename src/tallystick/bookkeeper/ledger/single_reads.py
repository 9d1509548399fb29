"""Single entries of one ledger, as one handle reads them: each from the first bookie of its write set (Q4, Q17).

A read that goes well costs its part of a request, of a check and of a timer (``read_channel.py``). One that does not
goes on as a read of a piece does (``fetch.py``), with what is known of it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.fetch import read_elsewhere
from tallystick.bookkeeper.ledger.ranges import ranges_of
from tallystick.bookkeeper.ledger.read import Entry, entries_of
from tallystick.bookkeeper.ledger.read_channel import ReadChannel
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.lost_runs import lost_of
from tallystick.bookkeeper.wire.values import BookieId, Ensemble, EntryId, LedgerId, LedgerMetadata


class _Places(NamedTuple):
    """Who has which entries, by metadata that a handle reads by."""

    metadata: LedgerMetadata
    firsts: list[EntryId]  # of the fragments, and
    ensembles: list[Ensemble]
    striping: Striping
    digest: Digest
    has_losses: bool
    is_sticky: bool

    @classmethod
    def of(cls, metadata: LedgerMetadata, *, sticky_reads: bool) -> _Places:
        """Raises MetadataError."""
        striping = Striping.of(metadata)
        return cls(
            metadata,
            [fragment.first for fragment in metadata.fragments],
            [fragment.bookies for fragment in metadata.fragments],
            striping,
            Digest.of(metadata.digest_type, metadata.password),
            bool(lost_of(metadata.custom)),
            sticky_reads and not striping.striped,
        )


class SingleReads:
    """See the module."""

    def __init__(self, client: BookieClient, ledger: LedgerId) -> None:
        self._client, self._ledger = client, ledger
        self._places: _Places | None = None
        self._channels: dict[BookieId, ReadChannel] = {}

    async def read(self, metadata: LedgerMetadata, entry: EntryId) -> Entry | None:
        """Read an entry that is known to be confirmed. Returns None if it is to be read in another way: the ledger has
        lost entries, or a read of it is under way.

        Raises NoSuchEntry, DigestMismatch, Unauthorized, Unavailable or one of its kinds, MetadataError.
        """
        places = self._places
        if places is None or places.metadata is not metadata:
            self._channels.clear()  # they check by a digest; what is outstanding comes all the same
            places = self._places = _Places.of(metadata, sticky_reads=self._client.settings.sticky_reads)
        if places.has_losses:
            return None
        bookie = self._first_bookie(places, entry)
        channel = self._channels.get(bookie)
        if channel is None or channel.has_ended:
            channel = self._channels[bookie] = self._client.read_channel(bookie, self._ledger, places.digest)
        read = channel.ask(entry)
        if read is None:
            return None
        outcome = await read
        if isinstance(outcome, ReadRun):
            piece = ranges_of(self._ledger, metadata, entry, entry)[0]
            return entries_of(await read_elsewhere(self._client, piece, bookie, outcome, read.asked_at))[0]
        payload, length, lac = outcome
        return Entry(entry, payload, self._ledger, length, lac)

    def _first_bookie(self, places: _Places, entry: EntryId) -> BookieId:
        """Return the first bookie of an entry's write set; of those that were slow at reads the one that was so first
        only where all were."""
        ensembles = places.ensembles
        ensemble = ensembles[bisect_right(places.firsts, entry) - 1] if len(ensembles) > 1 else ensembles[0]
        if places.is_sticky:
            entry = self._ledger  # any number that all reads of the ledger have in common
        if slow := self._client.slow:
            return min([ensemble[slot] for slot in places.striping.slots(entry)], key=slow.since)
        return ensemble[entry % len(ensemble)]
