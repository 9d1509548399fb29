"""Which space to give back: logs that nothing refers to, logs that are mostly dead, many small ones.

A ledger is deleted only when it was here before the metadata was listed and the whole listing does not name it: its
metadata is created before its first entry. ``compaction.py`` rewrites what is chosen here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from tallystick.bookkeeper.bookie.ledgers import Ledger, holds
from tallystick.bookkeeper.bookie.log_index import EntryLog
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.steps import Steps

_SMALL = 8  # a log with less than the memtable's size / 8 of live bytes is a small one
_INDEX_BYTES = 64  # of an entry in the index of a log, at most but for many short ledgers


def _live_bytes(logs: Collection[EntryLog], alive: Mapping[LedgerId, Ledger]) -> Steps[dict[int, int]]:
    """Count the bytes of live ledgers in each log; overwritten entries count until their log is rewritten.

    A step is some ledgers: each of thousands may have entries in each of hundreds of logs.
    """
    live, steps = dict[int, int](), 0
    for log in logs:
        ledgers = iter(log.by_ledger.items())
        live[log.id] = 0
        while part := list(islice(ledgers, STEP_LEDGERS)):
            live[log.id] += sum(size for ledger, size in part if holds(alive, ledger, log.id))
            steps += len(part)
            if steps >= STEP_LEDGERS:
                steps = 0
                yield
    return live


def logs_without_a_ledger(logs: Collection[EntryLog], alive: Mapping[LedgerId, Ledger]) -> Steps[tuple[int, ...]]:
    """Return the logs to delete as they are.

    A step is some ledgers, not a log: a bookie may have thousands of logs, most of them with a live ledger first.
    """
    dead_logs, steps = list[int](), 0
    for log in logs:
        steps += 1
        for ledger, size in log.by_ledger.items():
            if size and holds(alive, ledger, log.id):
                break
            steps += 1
            if steps >= STEP_LEDGERS:
                steps = 0
                yield
        else:
            dead_logs.append(log.id)
    return tuple(dead_logs)


def groups_to_rewrite(
    logs: Collection[EntryLog], alive: Mapping[LedgerId, Ledger], settings: StorageSettings
) -> Steps[list[tuple[int, ...]]]:
    """In steps: choose the logs that are mostly dead, and the small ones if there are many; the emptiest first.

    What is live in the logs of a group makes one new log, about as long as one of a checkpoint: space is given back
    after each of them, and a crash costs no more work than one.
    """
    live = yield from _live_bytes(logs, alive)
    rewrite = {log.id for log in logs if live[log.id] < settings.compact_below * log.size}
    small = [log.id for log in logs if live[log.id] < settings.memtable_bytes / _SMALL]
    if len(small) >= settings.merge_logs:
        rewrite.update(small)
    groups, size = list[tuple[int, ...]](), 0
    for log_id in sorted(rewrite, key=lambda log_id: (live[log_id], log_id)):
        size += live[log_id]
        if groups and size <= settings.memtable_bytes:
            groups[-1] = (*groups[-1], log_id)
        else:
            groups.append((log_id,))
            size = live[log_id]
    return groups


def room_to_rewrite(logs: Collection[EntryLog], alive: Mapping[LedgerId, Ledger]) -> Steps[int]:
    """In steps: return how many bytes the new log of a group may take, with its index."""
    live = yield from _live_bytes(logs, alive)
    return sum(live.values()) + sum(_INDEX_BYTES * log.entries for log in logs)
