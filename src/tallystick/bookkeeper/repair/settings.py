"""Settings of the auditor and the replicator."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.runtime.arguments import check_settings

_MAY_BE_ZERO = ("sample_entries", "grace_s", "bytes_per_s", "open_grace_s", "ledgers_at_once", "audit_ledgers_per_s")


@dataclass(frozen=True)
class RepairSettings:
    """One line a setting; units in the names. Raises UsageError for values that cannot work."""

    # A bookie that is gone for so long is lost; what was stored in the metadata before wins, unless it is 0, which the
    # original stores by itself (lostBookieRecoveryDelay, which is 0 there).
    grace_s: float = 600.0
    # An open ledger is fenced when its metadata stood still for so long (openLedgerRereplicationGracePeriod: 30 s).
    open_grace_s: float = 600.0
    audit_every_s: float = 86_400.0  # all ledgers are looked through so often (auditorPeriodicBookieCheckInterval)
    # So many ledgers a second, and faster where a quarter of that time would not do; 0: as fast as it can.
    audit_ledgers_per_s: float = 20.0
    close_check_s: float = 60.0  # so often the auditor looks for ledgers that were closed, and at their copies
    sample_entries: int = 2  # of each bookie's share of a fragment that are read a day, and their digests checked
    poll_s: float = 10.0  # marks are looked for so often; the first one after none is seen at once
    retry_s: float = 30.0  # a ledger that could not be repaired now is tried again after this long, and twice that …
    max_retry_s: float = 600.0  # … up to this
    bytes_per_s: float = 32 * 1024 * 1024  # that one replicator copies; 0: as fast as it can
    batch_entries: int = 256  # copied and read back at a time (rereplicationEntryBatchSize, which is 10 there)
    batch_bytes: int = 4 * 1024 * 1024  # and at most so many bytes, unless one entry is longer
    ledgers_at_once: int = 4  # that one replicator has in hand; 0: it repairs nothing

    def __post_init__(self) -> None:
        check_settings(self, may_be_zero=_MAY_BE_ZERO)
