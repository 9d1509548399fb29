"""What a bookie's ports lead to: its server, the wires of both versions, and the services behind them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.entry_lists import EntryLists
from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.handshakes import Handshakes
from tallystick.bookkeeper.bookie.holdings import Holdings
from tallystick.bookkeeper.bookie.lac_service import LacService
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.looks import Looks
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.permissions import ALL, Permission
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.server import BookieServer, Bounds
from tallystick.bookkeeper.bookie.service import Service
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.wire_v2 import WireV2
from tallystick.bookkeeper.bookie.wire_v3 import WireV3, encode_entry_list
from tallystick.bookkeeper.bookie.wires import Wires
from tallystick.bookkeeper.bookie.written import WrittenLedgers, must_be_noted
from tallystick.runtime.outside import Outside


@dataclass(frozen=True)
class Behind:
    """What the services of a bookie work on. ``fail`` hears that it cannot go on."""

    settings: BookieSettings
    outside: Outside
    storage: Storage
    committer: Committer
    looks: Looks
    guard: DiskGuard
    counts: Counts
    recent: RecentAdds
    fail: Callable[[Exception], None]


@dataclass(frozen=True)
class Front:
    """``peers`` is None where nobody is asked who he is."""

    server: BookieServer
    service: Service
    peers: Handshakes | None


def open_front(behind: Behind, stack: AsyncExitStack) -> Front:
    """Make the server, which is not listening yet. ``stack`` gets what to close, the server last."""
    settings, storage, guard, counts = behind.settings, behind.storage, behind.guard, behind.counts

    def looks() -> bool:
        return behind.looks.active

    fences = Fences(
        storage,
        counts,
        behind.recent,
        settings.max_fences_without_entries,
        looks=behind.looks.has_room,
        tell=partial(_report_refused_fences, behind),
    )
    service = Service(storage, guard, fences, counts, behind.recent, looks=looks, look_at=behind.looks.look_at)
    stack.callback(service.polls.close)
    lacs = LacService(storage, guard, counts, service.polls, looks=looks)
    lists = _entry_lists(behind, stack)
    holdings = Holdings(storage, guard, counts, lists, looks=looks)
    largest = settings.max_frame_bytes

    def wires_for(permission: Permission) -> Wires:
        most_bytes = settings.max_batch_read_bytes
        written = WrittenLedgers() if must_be_noted(permission) else None
        v2 = WireV2(
            service, max_frame_bytes=largest, max_batch_bytes=most_bytes, permission=permission, written=written
        )
        v3 = WireV3(service, lacs, holdings, v2, max_frame_bytes=largest, permission=permission, written=written)
        return Wires(v2, v3, max_frame_bytes=largest)

    peers = _handshakes(behind, wires_for, stack)
    server = BookieServer(
        wires_for(ALL),
        behind.committer,
        behind.looks,
        service.polls,
        lists,
        counts,
        behind.outside.events,
        Bounds.of(behind.outside.open_files, largest),
        peers,
    )
    stack.push_async_callback(server.stop)
    return Front(server, service, peers)


def _handshakes(behind: Behind, wires_for: Callable[[Permission], Wires], stack: AsyncExitStack) -> Handshakes | None:
    security, outside = behind.settings.security, behind.outside
    if not security.asks:
        return None
    peers = Handshakes(security, wires_for, outside, behind.counts)
    stack.callback(peers.close)
    return peers


def _entry_lists(behind: Behind, stack: AsyncExitStack) -> EntryLists:
    worker = behind.outside.workers("tally-lists")
    stack.callback(worker.close)
    encode = partial(encode_entry_list, max_bytes=behind.settings.max_frame_bytes)
    lists = EntryLists(worker, encode, behind.fail)
    stack.callback(lists.close)
    return lists


def _report_refused_fences(behind: Behind) -> None:
    reason = (
        "so many ledgers without an entry here are fenced (maxFencesWithoutEntries); another is fenced when the "
        "metadata has it"
    )
    behind.outside.events.emit("fences refused", count=behind.storage.fences_without_entries, reason=reason)
