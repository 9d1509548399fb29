"""The nouns of the ledger wing: ids, states, metadata. Frozen values without behaviour of a client or server."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tallystick.errors import UsageError

LedgerId = int
EntryId = int
BookieId = str
Slot = int  # a place in an ensemble, 0 … E-1
Ensemble = tuple[BookieId, ...]

NO_ENTRY: EntryId = -1
NO_CUSTOM: Mapping[str, bytes] = MappingProxyType({})
MAX_ID = (1 << 63) - 1
AVOIDED_KEY = "tallystick.avoided"  # of custom metadata: bookie ids, a space between


class DigestType(enum.Enum):
    """How an entry is protected (the numbers are those of the stored ledger metadata)."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4

    @classmethod
    def parse(cls, name: str | DigestType) -> DigestType:
        """Return a digest by its name in any case; "mac" is the original's other word for HMAC. Raises UsageError."""
        if isinstance(name, DigestType):
            return name
        if not isinstance(name, str):
            raise UsageError("a digest is given by its name", given=type(name).__name__)
        member_name = {"MAC": "HMAC"}.get(name.upper(), name.upper())
        if member_name not in cls.__members__:
            raise UsageError(f"unknown digest {name!r}; known: {', '.join(m.lower() for m in cls.__members__)}")
        return cls[member_name]


class LedgerState(enum.Enum):
    """OPEN takes entries, IN_RECOVERY is being fenced and closed by another client, CLOSED is final."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


_CLOSED = LedgerState.CLOSED  # a member is looked up in its class each time it is named


@dataclass(frozen=True, slots=True)
class Fragment:
    """The entries from ``first`` up to the next fragment's first are on these bookies."""

    first: EntryId
    bookies: Ensemble


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """The metadata of a ledger in the coordination service (Q3). Raises UsageError when they contradict each other."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    digest_type: DigestType = DigestType.CRC32
    password: bytes = field(default=b"", repr=False)
    state: LedgerState = LedgerState.OPEN
    last_entry: EntryId = NO_ENTRY  # only a closed ledger has one
    length: int = 0  # payload bytes; only a closed ledger has them
    custom: Mapping[str, bytes] = field(default_factory=lambda: NO_CUSTOM)
    format_version: int = 3
    # How they are stored, not what they say: metadata that differ in these three alone are equal.
    ctime_ms: int | None = field(default=None, compare=False)
    ctime_stored: bool = field(default=True, compare=False)  # else the time is the coordination service's own
    ctoken: int = field(default=0, compare=False)  # random at creation: tells an own create with a lost response
    has_password: bool = True  # format 1 stores neither password nor digest type

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            reason = "a ledger needs ensemble >= write quorum >= ack quorum >= 1"
            sizes = {"ensemble": self.ensemble_size, "write_quorum": self.write_quorum, "ack_quorum": self.ack_quorum}
            raise UsageError(reason, **sizes)
        if not self.fragments:
            raise UsageError("a ledger needs at least one ensemble")
        for fragment in self.fragments:
            if len(fragment.bookies) != self.ensemble_size:
                raise UsageError("an ensemble has another size than the ledger says", ensemble_size=self.ensemble_size)
        if len(self.fragments) > 1:
            firsts = [fragment.first for fragment in self.fragments]
            if any(a >= b for a, b in itertools.pairwise(firsts)):
                raise UsageError("the first entries of the ensembles do not ascend", firsts=firsts)
        if self.state is not _CLOSED and (self.last_entry, self.length) != (NO_ENTRY, 0):
            raise UsageError("only a closed ledger has a last entry and a length", state=self.state.name)

    @property
    def is_closed(self) -> bool:
        """Whether the ledger has its end."""
        return self.state is _CLOSED

    @property
    def avoided(self) -> tuple[BookieId, ...]:
        """The bookies that never get a place in an ensemble: they may hold an older ledger of the same id (Q2)."""
        return tuple(self.custom.get(AVOIDED_KEY, b"").decode(errors="replace").split())

    def avoiding(self, bookies: Sequence[BookieId]) -> LedgerMetadata:
        """Return the metadata with ``avoided`` bookies."""
        return replace(self, custom=MappingProxyType({**self.custom, AVOIDED_KEY: " ".join(bookies).encode()}))

    @property
    def ensemble(self) -> Ensemble:
        """The newest ensemble."""
        return self.fragments[-1].bookies

    def ensemble_of(self, entry: EntryId) -> Ensemble:
        """Return the ensemble that holds ``entry``."""
        for fragment in reversed(self.fragments):
            if fragment.first <= entry:
                return fragment.bookies
        return self.fragments[0].bookies

    def with_fragment(self, first: EntryId, bookies: Ensemble) -> LedgerMetadata:
        """Return the metadata with a new newest fragment; one that starts at the same entry is replaced (Q8)."""
        older = self.fragments[:-1] if self.fragments[-1].first == first else self.fragments
        # Thousands of ledgers may lose a bookie at once: ``replace`` takes three times as long.
        return LedgerMetadata(
            self.ensemble_size,
            self.write_quorum,
            self.ack_quorum,
            (*older, Fragment(first, bookies)),
            self.digest_type,
            self.password,
            self.state,
            self.last_entry,
            self.length,
            self.custom,
            self.format_version,
            self.ctime_ms,
            self.ctime_stored,
            self.ctoken,
            self.has_password,
        )

    def in_recovery(self) -> LedgerMetadata:
        """Return the metadata with the state IN_RECOVERY."""
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, last_entry: EntryId, length: int) -> LedgerMetadata:
        """Return the metadata with the state CLOSED and an end."""
        return replace(self, state=LedgerState.CLOSED, last_entry=last_entry, length=length)


@dataclass(frozen=True)
class Endpoint:
    """One address of a node, as its registration lists it."""

    id: str
    host: str
    port: int
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True)
class BookieInfo:
    """A registration: the addresses of a bookie."""

    endpoints: tuple[Endpoint, ...]
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def at(cls, host: str, port: int) -> BookieInfo:
        return cls((Endpoint("bookie", host, port, "bookie-rpc"),))

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the bookie protocol, None if the registration names none. An IPv6 host is without the
        brackets that it has in an id."""
        for endpoint in self.endpoints:
            if endpoint.protocol == "bookie-rpc":
                return endpoint.host.strip("[]"), endpoint.port
        return None
