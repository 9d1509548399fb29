"""That the metadata was put back from a backup, and what each bookie then has that it lacks: a tree of ours.

::

    <root>/../tallystick/<name of the root>/restored            JSON: RestoredMetadata; made by the restore itself
    <root>/../tallystick/<name of the root>/restored/<bookie>   JSON: BookieSurvey

Restored metadata lacks what was made since the backup, and knows of no change since: a bookie that compares itself with
that deletes what is good. So no bookie deletes a ledger until an operator has seen what lacks, and confirmed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from tallystick.bookkeeper.metadata import layout
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Versioned
from tallystick.bookkeeper.metadata.store import Create, Update, Version
from tallystick.bookkeeper.wire.registration import check_bookie_id
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import MetadataConflict, MetadataError

MOST_RUNS = 10_000  # of ledgers, of one kind in one survey; what is beyond is counted

Runs = tuple[tuple[LedgerId, LedgerId], ...]


@dataclass(frozen=True)
class RestoredMetadata:
    """What a restore did. ``epoch``: how often that was, ever. What went back, and what is lost, is known only where
    the file that was replaced could be read (``is_compared``)."""

    epoch: int
    at_ms: int
    next_ledger: LedgerId
    is_compared: bool
    open_ledgers: tuple[LedgerId, ...]
    lost_ledgers: tuple[LedgerId, ...]
    streams: tuple[str, ...]
    cursors: tuple[str, ...]
    applications: tuple[str, ...]
    confirmed_ms: int | None = None  # when an operator let collections go on
    confirmed_by: str | None = None


@dataclass(frozen=True)
class BookieSurvey:
    """Which ledgers one bookie has and the metadata lacks, as runs of ids. Those ``ahead`` are newer than the metadata:
    no collection deletes them by itself, as it does the ``missing``. ``deleted`` ones are in the metadata again, and
    the bookie deleted its entries. ``more``: ledgers that found no place here."""

    epoch: int
    at_ms: int
    ahead: Runs
    missing: Runs
    deleted: Runs
    more: int = 0


class RestoredTree:
    """The restore of one cluster that was last. Every method raises MetadataError, and so if what is there cannot be
    read: who would delete something deletes nothing then."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._store, self._path = driver.store, restored_path(driver.root)

    async def read(self) -> Versioned[RestoredMetadata] | None:
        """Returns None if the metadata was never restored. Synced."""
        await self._store.sync()
        node = await self._store.get(self._path)
        return None if node is None else Versioned(decode(node.data, self._path), node.version)

    async def held(self) -> RestoredMetadata | None:
        """Returns the restore that nobody has confirmed yet, None if there is none. Synced."""
        restored = await self.read()
        return None if restored is None or restored.value.confirmed_ms is not None else restored.value

    async def report(self, bookie: BookieId, survey: BookieSurvey) -> None:
        """Write what a bookie found."""
        path, data = f"{self._path}/{check_bookie_id(bookie)}", _encoded(survey)
        node = await self._store.get(path)
        if node is None or node.data != data:
            await self._store.change(Create(path, data) if node is None else Update(path, data, node.version))

    async def surveys(self) -> dict[BookieId, BookieSurvey]:
        """Returns what each bookie found, of this restore or of one before."""
        names = await self._store.children(self._path) or []
        nodes = await self._store.get_many([f"{self._path}/{name}" for name in names])
        return {name: _survey(nodes[path].data, path) for name in names if (path := f"{self._path}/{name}") in nodes}

    async def confirm(self, restored: RestoredMetadata, version: Version, now_ms: int, who: str) -> RestoredMetadata:
        """Let collections go on, and note who says so. Raises MetadataConflict if another restore came in between."""
        confirmed = replace(restored, confirmed_ms=now_ms, confirmed_by=who)
        try:
            await self._store.change(Update(self._path, encode(confirmed), version))
        except MetadataConflict:
            raise MetadataConflict("this was confirmed or restored by somebody else meanwhile: look again") from None
        return confirmed


def restored_path(root: str) -> str:
    """Returns where it is said that the metadata of the cluster with this root was restored."""
    return f"{layout.own_folder(root)}/restored"


def encode(restored: RestoredMetadata) -> bytes:
    """Returns the data of the node."""
    return _encoded(restored)


def _encoded(value: RestoredMetadata | BookieSurvey) -> bytes:
    # As it is: a copy by ``asdict`` looks at each of 60,000 numbers.
    return json.dumps(vars(value)).encode()


def decode(data: bytes, where: str) -> RestoredMetadata:
    """Raises MetadataError."""
    try:
        fields = json.loads(data)
        confirmed_ms = fields["confirmed_ms"]
        return RestoredMetadata(
            int(fields["epoch"]),
            int(fields["at_ms"]),
            int(fields["next_ledger"]),
            bool(fields["is_compared"]),
            tuple(map(int, fields["open_ledgers"])),
            tuple(map(int, fields["lost_ledgers"])),
            tuple(map(str, fields["streams"])),
            tuple(map(str, fields["cursors"])),
            tuple(map(str, fields["applications"])),
            None if confirmed_ms is None else int(confirmed_ms),
            None if confirmed_ms is None else str(fields["confirmed_by"]),
        )
    except (ValueError, KeyError, TypeError):
        raise MetadataError("what is said of the metadata's restore cannot be read", where=where) from None


def _survey(data: bytes, where: str) -> BookieSurvey:
    """Raises MetadataError."""
    try:
        fields = json.loads(data)
        ahead, missing, deleted = (_runs(fields[name]) for name in ("ahead", "missing", "deleted"))
        return BookieSurvey(int(fields["epoch"]), int(fields["at_ms"]), ahead, missing, deleted, int(fields["more"]))
    except (ValueError, KeyError, TypeError):
        raise MetadataError("what a bookie says that restored metadata lacks cannot be read", where=where) from None


def _runs(pairs: list[list[int]]) -> Runs:
    return tuple((int(first), int(last)) for first, last in pairs)
