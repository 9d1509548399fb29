"""What a writer keeps of its ledger while nothing is under way.

A process may have tens of thousands of ledgers open, and a full collection of Python's garbage looks at each object
that can refer to others, and at what it refers to. A plain tuple of numbers, bytes and such tuples is left out: so that
is what a writer without a session has, and what is the same for all ledgers on the same bookies is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tallystick.bookkeeper.ledger.changes import Stored
from tallystick.bookkeeper.ledger.replicas import Identities
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.store import Creation, Version
from tallystick.bookkeeper.wire.digest import Digest, master_key
from tallystick.bookkeeper.wire.metadata import decode, encode
from tallystick.bookkeeper.wire.values import (
    NO_ENTRY,
    BookieId,
    DigestType,
    Ensemble,
    EntryId,
    LedgerId,
    LedgerMetadata,
)
from tallystick.errors import TallyError

# Sizes, number of the digest type, ensemble, and those of its bookies whose identity is known.
Shape = tuple[tuple[int, int, int], int, Ensemble, tuple[tuple[BookieId, Creation | None], ...]]
Packed = tuple[LedgerId, EntryId, int, bytes, Version, Shape, bytes, tuple[BookieId, ...], TallyError | None]


@dataclass(slots=True, eq=False)
class WriterState:
    """The ledger's id, its metadata as this writer stored or read it last, and its end as far as it is confirmed.

    ``WriterState(*state.packed())`` is the same again.
    """

    id: LedgerId
    lac: EntryId
    length: int  # payload bytes up to the LAC
    _metadata: bytes
    _version: Version
    _shape: Shape
    _password: bytes
    failed: tuple[BookieId, ...]  # of the ensemble, as the last session left it: the next append replaces them (Q7)
    failure: TallyError | None  # why it takes no more entries

    @classmethod
    def of(cls, ledger: LedgerId, stored: Stored, identities: Identities) -> WriterState:
        """Of a ledger without entries. ``identities``: of its bookies, when they were chosen."""
        metadata = stored.value
        sizes = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
        shape: Shape = (sizes, metadata.digest_type.value, metadata.ensemble, ())
        state = cls(ledger, NO_ENTRY, 0, b"", 0, shape, metadata.password, (), None)
        state.store(stored)
        state.meet(metadata.ensemble, identities)
        return state

    def packed(self) -> Packed:
        return (
            self.id, self.lac, self.length, self._metadata, self._version, self._shape, self._password, self.failed,
            self.failure,
        )  # fmt: skip

    @property
    def striping(self) -> Striping:
        return Striping(*self._shape[0])

    def digest(self) -> Digest:
        return Digest.of(DigestType(self._shape[1]), self._password)

    def key(self) -> bytes:
        """What bookies compare before they take an entry."""
        return master_key(self._password)

    @property
    def stored(self) -> Stored:
        """The metadata and the version to name when they are replaced."""
        return Versioned(self.metadata, self._version)

    @property
    def metadata(self) -> LedgerMetadata:
        return decode(self._metadata)

    def store(self, stored: Stored) -> None:
        """This is in the metadata service now."""
        self._metadata, self._version = encode(stored.value), stored.version

    @property
    def ensemble(self) -> Ensemble:
        """The bookies that get the next entries."""
        return self._shape[2]

    @property
    def identities(self) -> Identities:
        """Who those bookies are: when they were chosen, or when they were met first. Of some it may not be known."""
        return dict(self._shape[3])

    def meet(self, ensemble: Ensemble, identities: Identities) -> None:
        """These bookies get the next entries, and this is who they are."""
        met = tuple([(bookie, identities[bookie]) for bookie in ensemble if bookie in identities])
        if (ensemble, met) != self._shape[2:]:
            self._shape = _shared((*self._shape[:2], ensemble, met))


@lru_cache(maxsize=1024)
def _shared(shape: Shape) -> Shape:
    """The same object for all ledgers that are equal in this."""
    return shape
