"""The bookies of a cluster: who is registered, who was once, and whether one answers."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.admin.ledgers import list_ledgers
from tallystick.bookkeeper.bookie import folder_room
from tallystick.bookkeeper.bookie.check import CheckReport, check_bookie
from tallystick.bookkeeper.bookie.collection_orders import Order, OrderFile
from tallystick.bookkeeper.bookie.cookies import folder_of
from tallystick.bookkeeper.bookie.drains import DrainFile
from tallystick.bookkeeper.bookie.folder_room import FOLDERS, FolderRoom
from tallystick.bookkeeper.bookie.listing import (
    DAMAGED,
    DELETIONS_WAITING,
    DRAINED,
    LEDGERS_AHEAD,
    SCRUB,
    SURPLUS_WAITING,
)
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.ledger.connection import BookieClient, BookieSpace
from tallystick.bookkeeper.ledger.settings import ClientSettings, secured
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Moment, RegisteredBookies, Versioned
from tallystick.bookkeeper.metadata.taken_out import TakenOut, TakenOutTree
from tallystick.bookkeeper.wire import cookie
from tallystick.bookkeeper.wire.cookie import Cookie
from tallystick.bookkeeper.wire.registration import LIMBO, auth_offers
from tallystick.bookkeeper.wire.values import MAX_ID, BookieId, BookieInfo
from tallystick.errors import BookieUnavailable, MetadataUnavailable, NotFound, Unavailable, UsageError
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.folder_lock import LOCK_FILE
from tallystick.runtime.machine import this_machine
from tallystick.runtime.rng import system_random

PROBE_TIMEOUT_S = 2.0
_SHOWN_LEDGERS = 5
_MOST_DIGITS = 19  # of a number that a registration says
_AHEAD = (
    "it has ledgers that are newer than the metadata, and refuses all new ones of their ids: put newer metadata back, "
    "or give those ledgers up with `tally bookie collect --now` on every bookie"
)
_LIMBO = (
    "its disk may lack entries: it fetches those of closed ledgers from the other replicas, and denies nothing until "
    "then; ledgers that are open leave limbo when they are closed"
)
_DAMAGED = (
    "entries on its disk cannot be read: it fetches them from the other replicas; its log names them, and why if none "
    "has them"
)


class BookiePresence(enum.Enum):
    """DOWN: it has a cookie, so it once joined, and no registration."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    DOWN = "down"


@dataclass(frozen=True)
class ScrubStatus:
    """A bookie's reading of all that it stores; times in milliseconds since 1970, 0: none."""

    percent: int  # of this round; 100 between two
    ended_ms: int  # the last one
    ends_ms: int  # this one, at its pace


@dataclass(frozen=True)
class BookieStatus:
    id: BookieId
    registered: BookiePresence
    info: BookieInfo | None

    @property
    def ledgers_ahead(self) -> int:
        """How many of its ledgers are newer than the metadata, which was restored from an older copy; 0 also when it
        is down."""
        return self.number(LEDGERS_AHEAD)

    @property
    def ledgers_in_limbo(self) -> int:
        """Of how many ledgers it may lack entries, and denies nothing; 0 also when it is down."""
        return self.number(LIMBO)

    @property
    def entries_damaged(self) -> int:
        """How many entries it stores and cannot read, as far as it noticed; 0 also when it is down."""
        return self.number(DAMAGED)

    @property
    def scrub(self) -> ScrubStatus | None:
        """How far it is with reading all that it stores; None when it does not say."""
        words = self.info.properties.get(SCRUB, "").split() if self.info else []
        if len(words) != 3 or not all(map(_is_number, words)):
            return None
        return ScrubStatus(*map(int, words))

    @property
    def folders(self) -> tuple[FolderRoom, ...]:
        """How full the disk of each of its folders is; none when it is down, or does not say."""
        return folder_room.decode(self.info.properties.get(FOLDERS, "") if self.info else "")

    @property
    def is_drained(self) -> bool:
        """Whether it is read-only by hand; False also when it is down."""
        return self.info is not None and self.info.properties.get(DRAINED) == "true"

    def number(self, name: str) -> int:
        """Returns the number that it registered under this name; 0 when there is none."""
        text = self.info.properties.get(name, "") if self.info else ""
        return int(text) if _is_number(text) else 0


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


@dataclass(frozen=True)
class BookieDetails:
    """``answers_ms`` is how long one response took; None when none came, and ``problem`` says why. ``space`` is that of
    its disks; None when it did not say."""

    bookie: BookieStatus
    cookie: Cookie | None
    answers_ms: float | None
    problem: str | None
    space: BookieSpace | None = None

    @property
    def deletions_waiting(self) -> int:
        """How many ledgers wait because so many at once lack in the metadata; 0 also when the bookie is down."""
        return self.bookie.number(DELETIONS_WAITING)

    @property
    def surplus_waiting(self) -> int:
        """How many ledgers wait of which others have what it has, so many at once; 0 also when the bookie is down."""
        return self.bookie.number(SURPLUS_WAITING)


async def list_bookies(driver: MetadataDriver) -> list[BookieStatus]:
    """Every bookie that is registered or has a cookie, by id."""
    bookies, cookie_ids = await driver.bookies(), await driver.cookies()
    return [_bookie(name, bookies) for name in sorted({*cookie_ids, *bookies.writable, *bookies.read_only})]


def _bookie(name: BookieId, bookies: RegisteredBookies) -> BookieStatus:
    if name in bookies.writable:
        return BookieStatus(name, BookiePresence.WRITABLE, bookies.writable[name])
    if name in bookies.read_only:
        return BookieStatus(name, BookiePresence.READ_ONLY, bookies.read_only[name])
    return BookieStatus(name, BookiePresence.DOWN, None)


async def bookie_details(driver: MetadataDriver, name: BookieId, uri: str | None = None) -> BookieDetails:
    """Also asks the bookie itself, with the keys that the metadata ``uri`` or the environment names. Raises
    NotFound for an id that never joined this cluster, UsageError."""
    bookie, cookie_node = await _joined(driver, name)
    answers_ms, problem, space = await _probe(bookie, uri)
    if problem is None and bookie.registered is BookiePresence.READ_ONLY and not bookie.is_drained:
        problem = "it takes no new entries: a disk of it is full or failing, its log says which"
    elif problem is None and bookie.ledgers_ahead:
        problem = _AHEAD
    elif problem is None and bookie.ledgers_in_limbo:
        problem = _LIMBO
    elif problem is None and bookie.entries_damaged:
        problem = _DAMAGED
    stored_cookie = cookie.decode(cookie_node.value) if cookie_node else None
    return BookieDetails(bookie, stored_cookie, answers_ms, problem, space)


async def forget_bookie(driver: MetadataDriver, name: BookieId, who: str, command: str = "forget") -> None:
    """Delete the cookie of a bookie that is down and that no ledger names: it leaves the list of those that joined.

    ``who`` and ``command`` stand in the audit line, which is written with it.

    Raises NotFound for an id that never joined; UsageError, and nothing is done, while it is registered or any ledger
    names it; MetadataConflict when its cookie changed meanwhile, or it came back; MetadataError when not all ledgers
    could be looked at.
    """
    began = await driver.sync()
    await _require_down(driver, name)
    cookie_node = await driver.read_cookie(name)
    if cookie_node is None:
        raise NotFound(await _unknown(driver, name))
    holding_ledgers = [
        ledger.id
        async for ledger in list_ledgers(driver)
        if any(name in fragment.bookies for fragment in ledger.metadata.fragments)
    ]
    if holding_ledgers:
        ledger_ids = ", ".join(map(str, holding_ledgers[:_SHOWN_LEDGERS]))
        ledger_ids += ", ..." if len(holding_ledgers) > _SHOWN_LEDGERS else ""
        raise UsageError(
            f"this bookie has entries of {len(holding_ledgers)} ledger{'s' if len(holding_ledgers) > 1 else ''}, "
            f"by id {ledger_ids}: start it again, or delete them first",
            bookie=name,
        )
    await _require_unbroken(driver, began)
    await _require_down(driver, name)  # it may have come back meanwhile
    await _require_unbroken(driver, began)
    line = TakenOut(name, who, SystemClock().wall_ms(), command, "its cookie is deleted")
    # It may come back between the look and this, too; if it came and went since the first look, its cookie changed.
    await driver.delete_cookie(name, cookie_node.version, TakenOutTree(driver).creation(line), is_down=True)


async def _require_unbroken(driver: MetadataDriver, began: Moment) -> None:
    """Catch up with the service. Raises MetadataUnavailable after a reconnect: what was read since may be old."""
    if await driver.sync() != began:
        raise MetadataUnavailable("the connection to the metadata broke while ledgers were looked at; try again")


async def require_joined(driver: MetadataDriver, name: BookieId) -> None:
    """Raises NotFound for an id that never joined this cluster."""
    await _joined(driver, name)


async def _joined(driver: MetadataDriver, name: BookieId) -> tuple[BookieStatus, Versioned[bytes] | None]:
    """Return how a bookie is registered, and its cookie. Raises NotFound for an id that never joined this cluster."""
    bookie = _bookie(name, await driver.bookies())
    cookie_node = await driver.read_cookie(name)
    if cookie_node is None and bookie.registered is BookiePresence.DOWN:
        raise NotFound(await _unknown(driver, name))
    return bookie, cookie_node


async def _require_down(driver: MetadataDriver, name: BookieId) -> None:
    bookie = _bookie(name, await driver.bookies())
    if bookie.registered is not BookiePresence.DOWN:
        raise UsageError(
            "this bookie is registered: stop it first; after a crash its registration ends by itself, in seconds",
            bookie=name,
            registered=bookie.registered.value,
        )


async def _unknown(driver: MetadataDriver, name: BookieId) -> str:
    ids = ", ".join(one.id for one in await list_bookies(driver)) or "none"
    return f"no bookie {name!r} in this cluster; it has {ids}"


def order_collection(ledger_dir: str, *, now: bool) -> None:
    """Ask the bookie on this folder to collect. ``now``: however many ledgers are gone.

    Raises StorageError when no bookie was ever started there.
    """
    order = Order.NOW if now else Order.SOON
    OrderFile(OsDisk(), ledger_dir).place(order, SystemClock().wall_ms() // 1000)


def drain(ledger_dir: str) -> None:
    """Make the bookie on this folder read-only. Raises StorageError when no bookie was ever started there."""
    DrainFile(OsDisk(), ledger_dir).order(SystemClock().wall_ms() // 1000)


def undo_drain(ledger_dir: str) -> None:
    """Let the bookie on this folder take writes again. Raises StorageError as ``drain``."""
    DrainFile(OsDisk(), ledger_dir).undo()


def check_folders(ledger_dirs: Sequence[str], journal_dirs: Sequence[str]) -> CheckReport:
    """Look for damage in the folders of a bookie that is down; nothing is written.

    Raises NotFound when no bookie was ever started there, UsageError while one runs.
    """
    disk = OsDisk()
    folders = StorageFolders(tuple(map(os.path.abspath, journal_dirs)), tuple(map(os.path.abspath, ledger_dirs)))
    with contextlib.ExitStack() as stack:
        for folder in dict.fromkeys(map(folder_of, (*folders.ledgers, *folders.journals))):
            if disk.exists(os.path.join(folder, LOCK_FILE)):  # to make it would be a change
                stack.callback(disk.lock(folder).release)
        return check_bookie(disk, folders, system_random())


async def _probe(bookie: BookieStatus, uri: str | None) -> tuple[float | None, str | None, BookieSpace | None]:
    """A connection proves little (the kernel accepts for a frozen process): read an entry that cannot exist instead."""
    address = bookie.info.address if bookie.info else None
    if address is None:
        return None, "it has no registered address", None

    async def resolve(name: BookieId) -> tuple[str, int]:
        return address

    async def offers(name: BookieId) -> tuple[str, ...]:
        return auth_offers(bookie.info)

    settings = secured(ClientSettings(read_timeout_s=PROBE_TIMEOUT_S, connect_timeout_s=PROBE_TIMEOUT_S), uri)
    client = BookieClient(this_machine(), resolve, settings, offers=offers)
    start_s = time.monotonic()
    try:
        async with asyncio.timeout(2 * PROBE_TIMEOUT_S):
            await client.read(bookie.id, MAX_ID, 0)
        answers_ms, space = (time.monotonic() - start_s) * 1000, None
        with contextlib.suppress(Unavailable, TimeoutError):  # an older bookie does not know that request
            async with asyncio.timeout(2 * PROBE_TIMEOUT_S):
                space = await client.bookie_space(bookie.id)
        return answers_ms, None, space
    except (Unavailable, TimeoutError) as error:
        return None, str(error) or str(BookieUnavailable()), None
    finally:
        await client.close()
