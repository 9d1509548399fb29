"""Settings of one bookie, with the original's defaults where they are ours too; docs/configuration.md has the keys."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie.places import MOST_FOLDERS
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import UsageError
from tallystick.runtime.network import refuse_readers

MIB = 1024 * 1024

_SIOCGIFADDR = 0x8915
_ID = re.compile(r"[a-zA-Z0-9:_.\-]+")


@dataclass(frozen=True)
class BookieSettings:
    """One line a setting; units in the names. Raises UsageError for values that cannot work."""

    metadata_uri: str
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    port: int = 3181  # 0: any free one, only with a bookie_id
    bookie_id: BookieId | None = None  # else host:port
    advertised_host: str | None = None  # what clients are told; else the address we listen on
    interface: str | None = None  # listen on this interface; else on 127.0.0.1
    rack: str | None = None  # where clients' placement policies take it to be: /rack, or /region/rack
    machine: str | None = None  # which it shares with other bookies; else clients go by the advertised host
    allow_loopback: bool = True
    keep_alive: bool = True  # idle connections are probed
    session_timeout_s: float = 10.0
    max_frame_bytes: int = 5 * MIB + 10 * 1024  # counts the length field, as the original's limit does
    max_batch_read_bytes: int = 5 * MIB
    gc_wait_s: float = 600.0  # between two looks at which ledgers were deleted
    gc_large_share: float = 0.25  # more deletions at once (and more than 100) are not believed at once
    gc_large_wait_s: float = 24 * 3600.0  # but when the same ledgers were gone for so long
    surplus_wait_s: float = 24 * 3600.0  # between two looks at copies that others have instead; 0: these stay
    max_fences_without_entries: int = 20_000  # beyond it only ledgers that the metadata has are fenced (``fences.py``)
    max_ledgers_without_metadata: int = 20_000  # beyond it the first add of an unknown one waits for a look
    allow_expansion: bool = False  # new, empty ledger folders come to those of the bookie's cookie
    read_only_when_any_full: bool = False  # else when all ledger folders are
    disk_usage_threshold: float = 0.95  # a fuller disk makes the bookie read-only
    disk_usage_warn_threshold: float = 0.9  # and of one that is fuller than this it warns
    high_priority_spare_bytes: int | None = None  # recovery writes while so much is free; else a share of the disk
    compaction_bytes_per_s: int = 16 * MIB  # copied when entry logs are rewritten
    compaction_entries_per_s: int = 50_000  # and at most so many entries
    fill_bytes_per_s: int = 32 * MIB  # fetched from other replicas for ledgers in limbo and for damaged entries
    scrub_bytes_per_s: int = 16 * MIB  # of entry logs that are read for damage; 0: none
    auto_recovery: bool = False  # an auditor and a replicator run in its process
    http_enabled: bool = False
    http_host: str = "127.0.0.1"
    http_port: int = 8080
    http_anonymous: bool = False  # whoever reaches the pages beyond this machine may read them
    security: SecuritySettings = field(default_factory=SecuritySettings)

    def __post_init__(self) -> None:
        for name, port in (("bookiePort", self.port), ("httpServerPort", self.http_port)):
            if not 0 <= port <= 65535:
                raise UsageError(f"{name} is not a port", value=port)
        if self.port == 0 and self.bookie_id is None:
            raise UsageError("bookiePort 0 needs a bookieId: the id would change with every start")
        if self.bookie_id is not None and (not _ID.fullmatch(self.bookie_id) or self.bookie_id == "readonly"):
            raise UsageError(
                "bookieId may have letters, digits and : _ . - and is not 'readonly'", value=self.bookie_id
            )
        for name, folders in (("journalDirectories", self.journal_dirs), ("ledgerDirectories", self.ledger_dirs)):
            if not 1 <= len(folders) <= MOST_FOLDERS or len(set(folders)) < len(folders):
                raise UsageError(f"{name} names 1 to {MOST_FOLDERS} folders, none twice", value=",".join(folders))
            for folder in folders:
                if not folder.startswith("/"):
                    raise UsageError(f"{name} are absolute paths", folder=folder)
        for name, share in (
            ("diskUsageThreshold", self.disk_usage_threshold),
            ("diskUsageWarnThreshold", self.disk_usage_warn_threshold),
        ):
            if not 0 < share < 1:
                raise UsageError(f"{name} lies between 0 and 1", value=share)
        if self.high_priority_spare_bytes is not None and self.high_priority_spare_bytes < 0:
            raise UsageError("minUsableSizeForHighPriorityWrites is not below 0", value=self.high_priority_spare_bytes)
        if not 0 <= self.gc_large_share <= 1:
            raise UsageError("gcLargeDeletionShare lies between 0 and 1", value=self.gc_large_share)
        for name, number in (
            ("zkTimeout", self.session_timeout_s),
            ("gcWaitTime", self.gc_wait_s),
            ("gcLargeDeletionWaitTime", self.gc_large_wait_s),
            ("maxBatchReadSize", self.max_batch_read_bytes),
            ("maxFencesWithoutEntries", self.max_fences_without_entries),
            ("maxLedgersWithoutMetadata", self.max_ledgers_without_metadata),
            ("compactionRateByBytes", self.compaction_bytes_per_s),
            ("compactionRateByEntries", self.compaction_entries_per_s),
            ("limboFillBytesPerSecond", self.fill_bytes_per_s),
        ):
            if number <= 0:
                raise UsageError(f"{name} must be above 0", value=number)
        for name, number in (
            ("scrubBytesPerSecond", self.scrub_bytes_per_s),
            ("gcOverreplicatedLedgerWaitTime", self.surplus_wait_s),
        ):
            if number < 0:
                raise UsageError(f"{name} is not below 0", value=number)
        if not 1024 <= self.max_frame_bytes < 1 << 31:
            raise UsageError("nettyMaxFrameSizeBytes lies between 1 KiB and 2 GiB", value=self.max_frame_bytes)

    @property
    def asks_readers(self) -> bool:
        """Whether who reads the pages from elsewhere must show a certificate."""
        security = self.security
        return security.tls and security.tls_required and security.tls_ask_certificate

    @property
    def lets_all_read(self) -> bool:
        """Whether it is written that whoever reaches the pages may read them."""
        return self.http_anonymous or self.security.allow_anonymous

    @property
    def folders(self) -> tuple[str, ...]:
        """All folders, each once."""
        return tuple(dict.fromkeys((*self.journal_dirs, *self.ledger_dirs)))

    @property
    def home(self) -> str:
        """The folder of what an operator leaves for the bookie, and of what it notes for itself: one without which it
        does not run."""
        return self.journal_dirs[0] if len(self.ledger_dirs) > 1 else self.ledger_dirs[0]


@dataclass(frozen=True)
class Addresses:
    """The address at which a bookie listens, the one that it registers, and its id."""

    listen_host: str
    advertised_host: str
    bookie: BookieId

    @property
    def is_loopback(self) -> bool:
        return is_near(self.listen_host)


def is_near(host: str) -> bool:
    """Return whether only this machine reaches what listens at this host; of a name that is so, "localhost" alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def addresses_of(settings: BookieSettings) -> Addresses:
    """Return the addresses by the settings. Raises UsageError: no such interface, or a loopback address that
    ``allowLoopback=false`` forbids."""
    host = interface_address(settings.interface) if settings.interface else "127.0.0.1"
    advertised = settings.advertised_host or host
    addresses = Addresses(host, advertised, settings.bookie_id or f"{advertised}:{settings.port}")
    if addresses.is_loopback and not settings.allow_loopback:
        raise UsageError(
            "allowLoopback=false, but this bookie would listen on loopback: set listeningInterface", host=host
        )
    if not (addresses.is_loopback or settings.security.authenticates or settings.security.allow_anonymous):
        raise UsageError(
            "listeningInterface is reached from other machines, and nobody must show who it is: set authMechanisms, or "
            "write allowAnonymous=true",
            host=host,
        )
    if settings.http_enabled and not is_near(settings.http_host):
        refuse_readers(settings.http_host, "httpServerHost", is_open=settings.lets_all_read, asks=settings.asks_readers)
    return addresses


def interface_address(name: str) -> str:
    """Return the IPv4 address of a network interface. Raises UsageError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            interface_data = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise UsageError("listeningInterface has no IPv4 address on this machine", interface=name) from error
    return socket.inet_ntoa(interface_data[20:24])
