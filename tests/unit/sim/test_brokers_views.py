"""What judges see of a broker's log past its shell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.message_stores import SMALL, Shelf
from tallystick.sim.brokers_views import BrokerView, unsynced_records


@pytest.mark.parametrize("into", [0, 1, 50, -1])
def test_a_record_that_is_synced_in_part_is_unsynced(into: int) -> None:
    """A slave syncs what has come, of which the last record may be a part; it may die as it becomes the master."""
    shelf = Shelf()
    first, second, third = (put.offsets[0] for put in shelf.send(b"a" * 100, b"b" * 100, b"c" * 100))
    mark = second + into if into >= 0 else third - 1
    seen = SimpleNamespace(first=0, end=shelf.store.end, slice=shelf.store.slice, flushed=mark)
    node = cast(BrokerView, SimpleNamespace(disk=shelf.disk))
    found = [record.physical_offset for record in unsynced_records(node, cast(Any, seen), SMALL.commit_log_file_bytes)]
    assert found == [second, third]
    assert first not in found
