"""A bookie's directories as version 0.1 left them, without a clean stop, open with everything that was promised.

``golden/bookie_directory.json`` has their files by path, deflated. Before the checkpoint: ledgers 1 to 3, creations of
1 and 3, a fence of 2; then 3 was deleted. After it, in the journal alone: more of 1, a fence of 9, which has no entry,
what recovery wrote to 2, and ledger 4 with its creation.
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

from support.stores import KEY, SMALL, SteppingClock, entry_bytes
from tallystick.bookkeeper.bookie.state import Kept
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.disk import OsDisk

FILES: dict[str, str] = json.loads((Path(__file__).parent / "golden" / "bookie_directory.json").read_text())
STORED = {1: range(15), 2: (0, 3, 6, 9), 4: (0, 1)}


def test_all_of_it_is_there(tmp_path: Path) -> None:
    for path, data in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(zlib.decompress(base64.b64decode(data)))
    folders = str(tmp_path / "journal"), str(tmp_path / "ledgers")
    for clean in (False, True, True):  # by replay, by what a replay left, and by a checkpoint of today
        storage = Storage.open(OsDisk(), *folders, SMALL, clock=SteppingClock())
        for ledger, entries in STORED.items():
            for entry in entries:
                assert storage.read(ledger, entry) == (Code.OK, entry_bytes(ledger, entry))
            assert storage.last_entry(ledger) == max(entries)
        assert [ledger for ledger in (1, 2, 4, 9) if storage.is_fenced(ledger)] == [2, 9]
        assert storage.read(3, 0)[0] == Code.NO_LEDGER and storage.read(9, 0)[0] == Code.NO_ENTRY
        kept = {ledger: storage.identities.kept(ledger) for ledger in (1, 3, 4)}
        assert kept == {1: Kept(77, False), 3: Kept(99, True), 4: Kept(123, False)}
        assert storage.add(2, 10, KEY, entry_bytes(2, 10)) == Code.FENCED
        storage.close(clean=clean)
