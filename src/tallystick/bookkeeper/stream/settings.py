"""Settings of streams and of their owners, with the defaults of Pulsar's ``ManagedLedgerConfig`` where it has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.bookkeeper.wire.compression import Compression, compress
from tallystick.errors import UsageError
from tallystick.runtime.arguments import check_settings, instance, number, text, whole

FORMATS = ("pulsar", "raw")
POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
UNLIMITED = -1
MAX_LEASE_S = 86_400  # whoever takes over from a process that died waits so long

Seconds = float  # or UNLIMITED
Bytes = int


@dataclass(frozen=True)
class StreamSettings:
    """How a stream is written and kept. Raises UsageError for values that cannot work."""

    ensemble: int = 3  # bookies of a ledger (ensembleSize)
    write_quorum: int = 2  # so many of them store an entry (writeQuorumSize)
    ack_quorum: int = 2  # and so many must have it before it counts (ackQuorumSize)
    max_entries_per_ledger: int = 50_000  # a ledger is full with these (maxEntriesPerLedger)
    max_ledger_bytes: int = 100 * 1024 * 1024  # or with these (maxSizePerLedgerMb)
    max_ledger_age_s: float = 4 * 3600.0  # or when it is so old and not empty (maximumRolloverTime)
    # Not stored yet, and 256 more for each append: beyond them append() waits, append_nowait() refuses.
    max_pending_bytes: int = 32 * 1024 * 1024
    # Appends fail that no ledger could take for so long (metadataOperationsTimeout), or that an open one has not stored
    # when it has stored nothing for so long and ``add_timeout_s`` of the client.
    max_pending_s: float = 60.0
    retention_s: Seconds = UNLIMITED  # a ledger that no cursor needs is deleted so long after it was closed; -1: never
    retention_bytes: Bytes = UNLIMITED  # or when those after it have so many bytes; -1: never
    ttl_s: Seconds = UNLIMITED  # cursors pass over messages that were published so long ago; -1: never (messageTTL)
    backlog_quota_bytes: Bytes = UNLIMITED  # behind the slowest durable cursor, at most; -1: any (backlogQuota)
    # Beyond it append() waits and append_nowait() refuses; both refuse; or cursors pass over the oldest messages.
    backlog_policy: str = "producer_request_hold"
    entry_format: str = "pulsar"  # with key, properties and times, as Pulsar's clients read; "raw": the bytes alone
    compression: str | None = None  # of entries in Pulsar's format: "lz4", "zlib", "zstd", "snappy"

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.ensemble >= self.write_quorum >= self.ack_quorum:
            raise UsageError(
                "of ensemble, write_quorum and ack_quorum none is more than the one before it",
                ensemble=self.ensemble,
                write_quorum=self.write_quorum,
                ack_quorum=self.ack_quorum,
            )
        if self.retention_s != UNLIMITED:
            number(self.retention_s, "retention_s")
        whole(self.retention_bytes, "retention_bytes", least=UNLIMITED)
        whole(self.backlog_quota_bytes, "backlog_quota_bytes", least=UNLIMITED)
        if self.backlog_policy not in POLICIES:
            raise UsageError(f"backlog_policy is one of {', '.join(POLICIES)}", given=self.backlog_policy)
        if self.ttl_s != UNLIMITED:
            number(self.ttl_s, "ttl_s", above=0)
            if self.entry_format == "raw":
                raise UsageError("raw entries do not say when they were published: they have no ttl_s")
        if self.entry_format not in FORMATS:
            raise UsageError(f"entry_format is one of {', '.join(FORMATS)}", given=self.entry_format)
        if self.compression is not None:
            compress(b"", Compression.parse(self.compression))  # its library is there before an owner is fenced
            if self.entry_format == "raw":
                raise UsageError("raw entries are stored as they are: they have no compression")

    @property
    def has_retention(self) -> bool:
        """Whether anything is ever deleted."""
        return self.retention_s != UNLIMITED or self.retention_bytes != UNLIMITED

    @property
    def has_upkeep(self) -> bool:
        """Whether the owner has to look after what is stored."""
        return self.has_retention or self.ttl_s != UNLIMITED


@dataclass(frozen=True)
class StreamClientSettings:
    """What all streams of a client share. Raises UsageError for values that cannot work."""

    lease_s: float = 10.0  # a stream whose owner is silent for so long can be opened by another
    owner: str = ""  # who others are told owns its streams; "": a name that chance gives
    stream: StreamSettings = field(default_factory=StreamSettings)  # of streams that are opened without their own
    max_entries_per_cursor_ledger: int = 50_000  # another takes its place then (metadataMaxEntriesPerLedger)
    # Numbers of producers are saved after so many numbered entries (brokerDeduplicationEntriesInterval).
    dedup_interval_entries: int = 1_000

    def __post_init__(self) -> None:
        check_settings(self)
        if self.lease_s > MAX_LEASE_S:
            raise UsageError(f"lease_s is at most {MAX_LEASE_S}, a day", given=self.lease_s)
        text(self.owner, "owner")
        instance(self.stream, StreamSettings, "stream")
