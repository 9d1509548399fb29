"""Take a bookie out of a cluster for good, alive or dead, without an entry losing a copy.

::

    refused ◀── too few would stay ── asked for ──▶ each ledger that names it: copy, compare-and-set
            ──▶ no ledger names it, looked at twice ──▶ stopped ──▶ its cookie is deleted: its folders start no bookie

Each step looks at what is stored, so it can be broken off and asked for again, also after the original's shell began
(``decommissionbookie``). Nothing is deleted of the bookie's folders.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tallystick.admin.bookies import BookiePresence, forget_bookie, list_bookies, require_joined
from tallystick.admin.ledgers import list_ledgers
from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Create, Delete, MetadataStore, Znode
from tallystick.bookkeeper.metadata.taken_out import TakenOut, TakenOutTree
from tallystick.bookkeeper.repair.ledger_names import LedgerNames
from tallystick.bookkeeper.repair.ledger_repair import Deferred, Lost
from tallystick.bookkeeper.repair.replicator import Replicator
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.registration import LIMBO
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import (
    BookieUnavailable,
    MetadataUnavailable,
    RequestTimeout,
    TallyError,
    Unauthorized,
    Unavailable,
    UsageError,
    ZnodeExists,
)


@dataclass(frozen=True)
class Decommission:
    """How far it came. ``left``: the ledgers that still name the bookie, and why. ``is_registered``: stop it, and ask
    again. ``is_done``: its cookie is gone."""

    moved: int
    left: dict[LedgerId, str]
    is_registered: bool
    is_done: bool


async def decommission(
    client: LedgerClient,
    bookie: BookieId,
    settings: RepairSettings,
    progress: Callable[[int], None],
    who: str,
    *,
    force: bool = False,
) -> Decommission:
    """Take a bookie out, as far as that can be done now. ``progress`` is called with how many more ledgers are done.

    ``who``: for the audit line, which is written each time that something was done, or passed over by ``force``.

    Raises NotFound for an id that never joined; UsageError, and nothing is done, for one that takes new entries, while
    another bookie is taken out, and when fewer would stay than the largest write quorum; MetadataError. With ``force``
    the last two are passed over, for who is an administrator at every bookie that stays: Unauthorized else.
    """
    driver = client.context.driver
    await require_joined(driver, bookie)
    path = f"/tallystick{driver.root}/decommission"
    if force:
        await _require_administrator(client, bookie)
    try:
        await driver.store.change(Create(path, bookie.encode(), ephemeral=True))
        is_alone = True
    except ZnodeExists:
        if not force:
            raise UsageError("a bookie is taken out already: one at a time", bookie=bookie) from None
        is_alone = False
    try:
        is_registered = await _require_room(driver, bookie, force=force)
        moved, left = await _move(client, bookie, settings, is_registered, progress)
        still_named = await LedgerNames(driver).read([bookie])
        left |= {ledger: "it was written meanwhile" for ledger in still_named if ledger not in left}
        command = "decommission --force" if force else "decommission"
        if left or is_registered:
            if moved or force:
                outcome = f"ledgers moved: {moved}, left: {len(left)}"
                now_ms = client.context.clock.wall_ms()
                await TakenOutTree(driver).note(TakenOut(bookie, who, now_ms, command, outcome))
            return Decommission(moved, left, is_registered, is_done=False)
        if is_alone and await _own(driver.store, path) is None:
            raise MetadataUnavailable("the connection to the metadata broke meanwhile: ask again", bookie=bookie)
        await forget_bookie(driver, bookie, who, command)  # looks at all ledgers once more
        return Decommission(moved, {}, is_registered, is_done=True)
    finally:
        if is_alone and (node := await _own(driver.store, path)) is not None:
            await driver.store.change(Delete(path, node.version))


async def _own(store: MetadataStore, path: str) -> Znode | None:
    """Return the node if this client made it: it goes with the client's connection, and another's may stand there."""
    node = await store.get(path)
    return node if node is not None and node.owner in store.owners else None


async def _require_administrator(client: LedgerClient, bookie: BookieId) -> None:
    """Ask every bookie that stays. Raises Unauthorized if one says no, Unavailable if none says anything."""
    bookies, allowed = await client.bookies(), 0
    for other in (*bookies.writable, *bookies.read_only):
        if other != bookie:
            with suppress(BookieUnavailable, RequestTimeout):
                if not await client.context.bookies.may_administer(other):
                    raise Unauthorized("--force is for administrators: this bookie says no", bookie=other)
                allowed += 1
    if not allowed:
        raise Unavailable("no bookie said whether this is an administrator", bookie=bookie)


async def _require_room(driver: MetadataDriver, bookie: BookieId, *, force: bool) -> bool:
    """Return whether the bookie is registered. Raises UsageError if it must stay."""
    by_id = {each.id: each for each in await list_bookies(driver)}
    if by_id[bookie].registered is BookiePresence.WRITABLE:
        raise UsageError("it takes new entries: on its machine, tally bookie drain, or stop it", bookie=bookie)
    staying = [
        each
        for each in by_id.values()
        if each.id != bookie and each.registered is BookiePresence.WRITABLE and not each.number(LIMBO)
    ]
    largest = max([ledger.metadata.write_quorum async for ledger in list_ledgers(driver)], default=1)
    if len(staying) < largest and not force:
        raise UsageError(
            "fewer bookies would stay than the largest write quorum of a ledger",
            bookie=bookie,
            staying=len(staying),
            write_quorum=largest,
        )
    return by_id[bookie].registered is BookiePresence.READ_ONLY


async def _move(
    client: LedgerClient,
    bookie: BookieId,
    settings: RepairSettings,
    is_registered: bool,
    progress: Callable[[int], None],
) -> tuple[int, dict[LedgerId, str]]:
    """Give what the bookie has to others. Return of how many ledgers that is done, and why not of the rest."""
    replicator = Replicator(client, "tally bookie decommission", settings)
    moved, left = 0, dict[LedgerId, str]()
    for ledger in await LedgerNames(client.context.driver).read([bookie]):
        try:
            outcome = await replicator.repair_now(ledger, (bookie,), leaving=(bookie,) if is_registered else ())
        except TallyError as error:
            left[ledger] = str(error)
            continue
        if isinstance(outcome, Deferred):
            left[ledger] = outcome.reason
        elif isinstance(outcome, Lost):
            left[ledger] = "it alone may have some of the entries"
        else:
            moved += 1
        progress(1)
    return moved, left
