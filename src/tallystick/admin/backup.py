"""Backups of a cluster's metadata in SQLite, and putting one back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.highest import highest_ledger
from tallystick.bookkeeper.metadata import sqlite_copies
from tallystick.bookkeeper.metadata.layout import SHORT_IDS_END
from tallystick.bookkeeper.metadata.restored import RestoredMetadata
from tallystick.bookkeeper.metadata.sqlite_copies import Content
from tallystick.bookkeeper.metadata.uri import SqliteUri, parse
from tallystick.bookkeeper.stream.splice.record import applications
from tallystick.bookkeeper.wire import cookie, metadata
from tallystick.bookkeeper.wire.managed_ledgers import decode_stream
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, LedgerState
from tallystick.errors import MetadataError, TallyError, UsageError
from tallystick.runtime.disk import Disk, OsDisk

_STREAM_PARTS = 4  # of a path below /managed-ledgers; a cursor's has one more


@dataclass(frozen=True)
class Restoration:
    """What putting a backup back does, or did. ``next_ledger`` is the first id that is given out; ``highest`` is by
    bookie the highest that it has, ``unknown`` why it cannot be told. What went back, and what is lost, is known only
    where the file that is replaced can be read (``compared``). ``aside`` is where that file is now, None if nothing was
    done."""

    instance: str
    ledgers: int
    next_ledger: LedgerId
    highest: dict[BookieId, LedgerId]
    unknown: dict[BookieId, str]
    compared: bool
    open_ledgers: tuple[LedgerId, ...]
    lost_ledgers: tuple[LedgerId, ...]
    streams: tuple[str, ...]
    cursors: tuple[str, ...]
    applications: tuple[str, ...]
    aside: str | None = None
    done: bool = False


def backup(uri: str, file: str) -> Content:
    """Copy the metadata of a cluster that may run. Returns what the copy has. Raises UsageError, MetadataError."""
    path, file = _path(uri), os.path.abspath(file)
    sqlite_copies.copy(path, file)
    return sqlite_copies.read(file)


def restore(
    uri: str,
    file: str,
    *,
    next_ledger: LedgerId | None = None,
    do: bool = False,
    disk_of: Callable[[BookieId], Disk] = lambda bookie: OsDisk(),
) -> Restoration:
    """Put a backup in the place of a cluster's metadata; without ``do`` only say what that would mean.

    Each known bookie, which is stopped, is asked for its highest ledger by its folders on its disk. Raises UsageError
    where one cannot be, and ``next_ledger`` does not say from where on ids are free; MetadataError for what is no
    backup.
    """
    path, file = _path(uri), os.path.abspath(file)
    kept = sqlite_copies.read(file)
    present = sqlite_copies.read_alone(path)
    if present is not None and present.instance != kept.instance:
        raise UsageError(
            "the backup is of another cluster than the file that it would replace: move that away by hand if it is "
            "right",
            backup=kept.instance,
            present=present.instance,
        )
    highest, unknown = _ask({**kept.cookies, **(present.cookies if present is not None else {})}, disk_of)
    if unknown and next_ledger is None and do:
        reasons = "; ".join(f"{bookie}: {why}" for bookie, why in unknown.items())
        raise UsageError(
            f"it is not known which ledgers these bookies have, and their ids would be given out again: {reasons}. "
            "Make their folders readable here, or give --next-ledger, above all ids that were ever given"
        )
    first = max(
        kept.next_ledger,
        next_ledger or 0,
        present.next_ledger if present is not None else 0,
        *(ledger + 1 for ledger in _drawn([*highest.values()], kept, present)),
    )
    plan = _plan(kept, present, first, highest, unknown)
    if not do:
        return plan
    epoch = 1 + max(kept.epoch, present.epoch if present is not None else 0)
    aside = sqlite_copies.replace(path, file, _restored(plan, epoch))
    return Restoration(**{**vars(plan), "aside": aside, "done": True})


def _drawn(highest: Iterable[LedgerId], *known: Content | None) -> list[LedgerId]:
    """Return those that may have been drawn: in a cluster without long ids a long one was chosen."""
    is_long = any(content is not None and content.next_ledger >= SHORT_IDS_END for content in known)
    return [ledger for ledger in (*highest, -1) if is_long or ledger < SHORT_IDS_END]


def _ask(
    cookies: dict[BookieId, bytes], disk_of: Callable[[BookieId], Disk]
) -> tuple[dict[BookieId, LedgerId], dict[BookieId, str]]:
    highest, unknown = dict[BookieId, LedgerId](), dict[BookieId, str]()
    for bookie, data in sorted(cookies.items()):
        try:
            stored = cookie.decode(data, where=f"the cookie of {bookie}")
            highest[bookie] = highest_ledger(disk_of(bookie), stored.journal_dirs, stored.ledger_dirs)
        except (TallyError, OSError, ValueError) as error:
            unknown[bookie] = " ".join(str(error).split())
    return highest, unknown


def _plan(
    kept: Content,
    present: Content | None,
    first: LedgerId,
    highest: dict[BookieId, LedgerId],
    unknown: dict[BookieId, str],
) -> Restoration:
    newer = () if present is None else [
        name for name, node in present.streams.items() if kept.streams.get(name) != node
    ]  # fmt: skip
    names = sorted(name.removeprefix("/managed-ledgers/") for name in newer)
    states = {ledger: metadata.state_of(data) for ledger, data in kept.ledgers.items()}
    return Restoration(
        kept.instance,
        len(kept.ledgers),
        first,
        highest,
        unknown,
        present is not None,
        tuple(sorted(ledger for ledger, state in states.items() if state is not LedgerState.CLOSED)),
        () if present is None else tuple(sorted(present.ledgers.keys() - kept.ledgers.keys())),
        tuple(name for name in names if name.count("/") == _STREAM_PARTS - 1),
        tuple(name for name in names if name.count("/") == _STREAM_PARTS),
        () if present is None else tuple(sorted(set(_records(present, kept)))),
    )


def _records(present: Content, kept: Content) -> Iterable[str]:
    """Yield the applications of sinks whose record is not what it was: their next batch may be one that is stored."""
    for name, (_, _, data) in present.streams.items():
        if kept.streams.get(name) == present.streams[name] or name.count("/") != _STREAM_PARTS + 1:
            continue
        now, before = _applications(data, name), _applications(kept.streams.get(name, (0, 0, b""))[2], name)
        for application, record in now.items():
            if before.get(application) != record:
                yield f"{application} (in {name.removeprefix('/managed-ledgers/')})"


def _applications(data: bytes, name: str) -> dict[str, object]:
    try:
        return dict(applications(decode_stream(data, where=name))) if data else {}
    except MetadataError:
        return {}


def _restored(plan: Restoration, epoch: int) -> RestoredMetadata:
    return RestoredMetadata(
        epoch,
        time.time_ns() // 1_000_000,
        plan.next_ledger,
        plan.compared,
        plan.open_ledgers,
        plan.lost_ledgers,
        plan.streams,
        plan.cursors,
        plan.applications,
    )


def _path(uri: str) -> str:
    where = parse(uri)
    if not isinstance(where, SqliteUri):
        raise UsageError(
            "only metadata in SQLite is copied so: ZooKeeper goes back to one point as a whole, by its own means",
            uri=uri,
        )
    return where.path
