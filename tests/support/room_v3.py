"""A bookie's wire of version 3 over a storage, without sockets."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.bookies import SMALL
from support.requesters import Asker
from support.v3_frames import (
    answers_v3,
)
from support.workers import HeldWorker
from tallystick.bookkeeper.bookie.entry_lists import EntryLists
from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.holdings import Holdings
from tallystick.bookkeeper.bookie.lac_service import LacService
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.service import Service
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.wire_v2 import WireV2
from tallystick.bookkeeper.bookie.wire_v3 import WireV3, encode_entry_list
from tallystick.bookkeeper.bookie.wires import ServeResult
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.disk import OsDisk

MAX_FRAME = 64 * 1024
GIB = 1024**3
LOOKS = 5  # so many requests may wait


@dataclass
class Room:
    wire: WireV3
    v2: WireV2
    service: Service
    storage: Storage
    guard: DiskGuard
    counts: Counts
    worker: HeldWorker
    came: list[bytes] = field(default_factory=list)  # responses that came later

    def ask(self, data: bytes) -> ServeResult:
        served = self.wire.serve(data)
        assert served.refusal is None
        for begin in served.later:
            begin(Asker(), self.came.append)
        return served

    def answers(self, data: bytes) -> list[Any]:
        """Responses to a buffer of whole frames, durable ones last."""
        served = self.ask(data)
        assert served.position == len(data) and served.next_wire is None
        return answers_v3(b"".join([*served.at_once, *served.when_written, *served.when_durable]))

    def codes(self, data: bytes) -> list[Code]:
        return [answer.code for answer in self.answers(data)]


def make_room(path: Path, fences: int = 1000) -> Room:
    storage = Storage.open(OsDisk(), StorageFolders((str(path / "journal"),), (str(path / "ledgers"),)), SMALL)
    guard, counts, recent, worker = DiskGuard(0.95), Counts(), RecentAdds(), HeldWorker()
    bounded = Fences(storage, counts, recent, fences, looks=lambda more: more < LOOKS, tell=lambda: None)
    service = Service(storage, guard, bounded, counts, recent, looks=lambda: False, look_at=lambda ledger: None)
    lacs = LacService(storage, guard, counts, service.polls, looks=lambda: service.looks())
    lists = EntryLists(worker, lambda runs: encode_entry_list(runs, max_bytes=MAX_FRAME), lambda error: None)
    holdings = Holdings(storage, guard, counts, lists, looks=lambda: service.looks())
    v2 = WireV2(service, max_frame_bytes=MAX_FRAME, max_batch_bytes=4096)
    wire = WireV3(service, lacs, holdings, v2, max_frame_bytes=MAX_FRAME)
    return Room(wire, v2, service, storage, guard, counts, worker)
