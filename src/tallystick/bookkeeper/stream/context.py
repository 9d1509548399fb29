"""What all handles of one client that know streams share."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.stream.catalog import StreamCatalog
from tallystick.bookkeeper.stream.deletions import Deletions
from tallystick.bookkeeper.stream.leases import Leases
from tallystick.bookkeeper.stream.reader import StreamReaders
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.bookkeeper.stream.side_thread import SideThread


@dataclass(frozen=True)
class StreamContext:
    """The parts of a client that its streams, readers and cursors use."""

    ledgers: LedgerClient
    context: LedgerContext
    catalog: StreamCatalog
    leases: Leases
    deletions: Deletions
    readers: StreamReaders
    settings: StreamClientSettings
    encoding_thread: SideThread
