"""Settings of replication, for masters and slaves."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tallystick.errors import UsageError
from tallystick.rocketmq.ha.entry import Addresses, read_addresses
from tallystick.rocketmq.wire.ha import MAX_BODY_BYTES
from tallystick.runtime import keyfile
from tallystick.runtime.schema import Key, Part

MIB = 1024 * 1024


@dataclass(frozen=True)
class HaSettings:
    """One line a setting; units in the names; the original's key in brackets. Raises UsageError for bad values."""

    host: str = "127.0.0.1"  # where the HA port listens (the original's ignores its bindAddress)
    port: int = 10912  # 0 takes a free one (haListenPort)
    slave_id: str = "slave"  # tells two links of one slave from two slaves; by default the broker's name and id
    sync_flush: bool = False  # a slave acknowledges what it synced, not only what it appended (flushDiskType)
    copy_whole_log: bool = False  # an empty slave asks for all of the log, not only the newest file: ours only
    in_sync_replicas: int = 1  # copies that a synchronous send needs, the master's counts; below 2: one slave
    slave_timeout_ms: int = 5000  # how long a synchronous send waits for them (slaveTimeout)
    out_of_sync_when_late: bool = False  # a slave that let a send time out is not waited for until it has caught up
    sync_flush_timeout_ms: int = 5000  # how long one waits for the master's disk (syncFlushTimeout)
    max_gap_bytes: int = 256 * MIB  # a slave that is so far behind is not waited for (haMaxGapNotInSync)
    batch_bytes: int = 32 * 1024  # the longest body of a frame (haTransferBatchSize)
    heartbeat_ms: int = 5000  # of silence before a heartbeat or a report (haSendHeartbeatInterval)
    housekeeping_ms: int = 20_000  # of hearing nothing before a link is given up (haHousekeepingInterval)
    retry_ms: int = 5000  # before a slave tries again
    handshake_ms: int = 1000  # how long a slave waits for a sign that the master knows our extension
    greeting_ms: int = 10_000  # how long a connection may take to say where its log ends; originals take up to 5 s
    max_slaves: int = 128  # that are told apart by their ids and always get in
    max_strangers: int = 32  # connections that have not yet shown to be a slave's, and as many that only greet

    asks: bool = False  # slaves must be allowed by what follows, or be on the master's machine
    allowed_addresses: Addresses = ()  # of slaves without TLS: ours only (haAllowedAddresses)
    allowed_names: tuple[str, ...] = ()  # of the certificates of slaves; none: any of them: ours only (haAllowedNames)
    plaintext: bool = False  # a slave whose broker uses TLS follows an original master: ours only (haPlaintext)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "port" else 1
            if field.type == "int" and value < least:
                raise UsageError(f"{field.name} must be at least {least}", value=value)
        if self.batch_bytes > MAX_BODY_BYTES:
            raise UsageError(
                f"batch_bytes must be at most {MAX_BODY_BYTES}: a slave takes no longer frame", value=self.batch_bytes
            )
        if not 0 < len(self.slave_id) <= 255:
            raise UsageError("slave_id has 1 to 255 characters", value=self.slave_id)

    @property
    def slaves_needed(self) -> int:
        """How many slaves a synchronous send waits for (H9: at least one, whatever ``inSyncReplicas`` says)."""
        return max(1, self.in_sync_replicas - 1)


def _names(key: str, value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(";") if name.strip())


KEYS = Part(
    HaSettings,
    {
        "haSendHeartbeatInterval": Key("heartbeat_ms", keyfile.integer),
        "haHousekeepingInterval": Key("housekeeping_ms", keyfile.integer),
        "haTransferBatchSize": Key("batch_bytes", keyfile.integer),
        "haMaxGapNotInSync": Key("max_gap_bytes", keyfile.integer),
        "slaveTimeout": Key("slave_timeout_ms", keyfile.integer),
        "syncFlushTimeout": Key("sync_flush_timeout_ms", keyfile.integer),
        "inSyncReplicas": Key("in_sync_replicas", keyfile.integer),
        "slaveOutOfSyncWhenLate": Key("out_of_sync_when_late", keyfile.flag),  # ours only
        "haAllowedAddresses": Key("allowed_addresses", read_addresses),  # these three are ours only
        "haAllowedNames": Key("allowed_names", _names),
        "haPlaintext": Key("plaintext", keyfile.flag),
        "copyWholeLog": Key("copy_whole_log", keyfile.flag),  # ours only
    },
)
