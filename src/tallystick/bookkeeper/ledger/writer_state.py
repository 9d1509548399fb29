"""The state of a writer's ledger while nothing is under way.

A process may have tens of thousands of ledgers open, and a full collection of Python's garbage looks at each object
that can refer to others, and at what it refers to. A plain tuple of numbers, bytes and such tuples is left out: so that
is what a writer without a session has, and what is the same for all ledgers on the same bookies is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from tallystick.bookkeeper.ledger.changes import VersionedMetadata
from tallystick.bookkeeper.ledger.replicas import BookieIdentities
from tallystick.bookkeeper.ledger.striping import Striping, striping_of
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.store import Creation, Version
from tallystick.bookkeeper.wire.digest import Digest, master_key
from tallystick.bookkeeper.wire.values import (
    NO_CUSTOM,
    NO_ENTRY,
    BookieId,
    DigestType,
    Ensemble,
    EntryId,
    Fragment,
    LedgerId,
    LedgerMetadata,
    LedgerState,
)
from tallystick.errors import TallyError

# Sizes, number of the digest type, ensemble, and those of its bookies whose identity is known.
PackedShape = tuple[tuple[int, int, int], int, Ensemble, tuple[tuple[BookieId, Creation | None], ...]]
# What most ledgers of a client have alike: state, last entry, length, custom metadata, and how the metadata are kept.
Common = tuple[int, EntryId, int, tuple[tuple[str, bytes], ...], int, bool, bool]
PackedMetadata = tuple[tuple[tuple[EntryId, Ensemble], ...], int | None, int, Common]  # fragments, ctime, ctoken
Packed = tuple[
    LedgerId, EntryId, int, PackedMetadata, Version, PackedShape, bytes, tuple[BookieId, ...], TallyError | None
]

_STATES = {state.value: state for state in LedgerState}  # the enumerations' own look-up takes ten times as long
_DIGEST_TYPES = {digest.value: digest for digest in DigestType}


@dataclass(slots=True, eq=False)
class WriterState:
    """The ledger's id, its metadata as this writer stored or read it last, and its end as far as it is confirmed.

    ``WriterState(*state.packed())`` is the same again.
    """

    id: LedgerId
    lac: EntryId
    length: int  # payload bytes up to the LAC
    _metadata: PackedMetadata
    _version: Version
    _shape: PackedShape
    _password: bytes
    failed_bookies: tuple[
        BookieId, ...
    ]  # of the ensemble, as the last session left it: the next append replaces them (Q7)
    failure: TallyError | None  # why it takes no more entries

    @classmethod
    def of(cls, ledger: LedgerId, versioned: VersionedMetadata, identities: BookieIdentities) -> WriterState:
        """Return the state of a ledger without entries; its bookies had these ``identities`` when they were chosen."""
        metadata = versioned.value
        sizes = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
        shape: PackedShape = (sizes, metadata.digest_type.value, metadata.ensemble, ())
        state = cls(ledger, NO_ENTRY, 0, _packed(metadata), versioned.version, shape, metadata.password, (), None)
        state.meet(metadata.ensemble, identities)
        return state

    def packed(self) -> Packed:
        metadata = self._metadata, self._version, self._shape, self._password
        return self.id, self.lac, self.length, *metadata, self.failed_bookies, self.failure

    @property
    def striping(self) -> Striping:
        return striping_of(*self._shape[0])

    def digest(self) -> Digest:
        return Digest.of(_DIGEST_TYPES[self._shape[1]], self._password)

    def key(self) -> bytes:
        """Return what bookies compare before they take an entry."""
        return master_key(self._password)

    @property
    def versioned(self) -> VersionedMetadata:
        """The metadata and the version to name when they are replaced."""
        return Versioned(self.metadata, self._version)

    @property
    def metadata(self) -> LedgerMetadata:
        fragments, ctime_ms, ctoken, common = self._metadata
        state, last_entry, length, custom, format_version, ctime_stored, has_password = common
        return LedgerMetadata(
            *self._shape[0],
            tuple([Fragment(first, bookies) for first, bookies in fragments]),
            _DIGEST_TYPES[self._shape[1]],
            self._password,
            _STATES[state],
            last_entry,
            length,
            MappingProxyType(dict(custom)) if custom else NO_CUSTOM,
            format_version,
            ctime_ms,
            ctime_stored,
            ctoken,
            has_password,
        )

    def store(self, versioned: VersionedMetadata) -> None:
        """Note that this is in the metadata service now."""
        self._metadata, self._version = _packed(versioned.value), versioned.version

    @property
    def ensemble(self) -> Ensemble:
        """The bookies that get the next entries."""
        return self._shape[2]

    @property
    def identities(self) -> BookieIdentities:
        """The identities of these bookies when they were chosen, or met first; of some none may be known."""
        return dict(self._shape[3])

    def meet(self, ensemble: Ensemble, identities: BookieIdentities) -> None:
        """Note the bookies that get the next entries, and their identities."""
        known_identities = tuple([(bookie, identities[bookie]) for bookie in ensemble if bookie in identities])
        if (ensemble, known_identities) != self._shape[2:]:
            self._shape = _shared((*self._shape[:2], ensemble, known_identities))


def _packed(metadata: LedgerMetadata) -> PackedMetadata:
    """Pack metadata without what the shape has, and without the password."""
    state, custom = metadata.state.value, tuple(metadata.custom.items())
    form = metadata.format_version, metadata.ctime_stored, metadata.has_password
    common = _common(state, metadata.last_entry, metadata.length, custom, *form)
    fragments = tuple([(fragment.first, fragment.bookies) for fragment in metadata.fragments])
    if len(fragments) == 1:  # as of most
        fragments = _only(fragments[0])
    return fragments, metadata.ctime_ms, metadata.ctoken, common


@lru_cache(maxsize=1024)
def _shared(shape: PackedShape) -> PackedShape:
    """Return the same object for all ledgers that are equal in this."""
    return shape


@lru_cache(maxsize=64)
def _common(*common: *Common) -> Common:
    return common


@lru_cache(maxsize=1024)
def _only(fragment: tuple[EntryId, Ensemble]) -> tuple[tuple[EntryId, Ensemble]]:
    return (fragment,)
