"""The tree of ledgers that lack copies, shared with the original's AutoRecovery, over any store.

::

    <root>/underreplication/LAYOUT
    <root>/underreplication/ledgers/0000/0000/0000/0007/urL0000000007    a mark: 16 hexadecimal digits, then ten decimal
    <root>/underreplication/locks/urL0000000007                          ephemeral: a worker has the ledger in hand
    <root>/underreplication/disable                                      there is one: nothing is marked or repaired
    <root>/underreplication/lostBookieRecoveryDelay                      seconds as text; written anew: audit now
    <root>/underreplication/auditorelection/V_0000000003                 ephemeral votes; the lowest is the auditor

A mark is taken away only as it was when its lock was taken: new damage keeps it. Follows the original's
``ZkLedgerUnderreplicationManager`` and ``ZkLedgerAuditorManager``, but for the numbers of votes, see ``vote``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Collection

from tallystick.bookkeeper.metadata.damage import Tell, decoded, refuse
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Versioned
from tallystick.bookkeeper.metadata.layout import folders_of
from tallystick.bookkeeper.metadata.store import Create, Delete, Update, Version, Watch
from tallystick.bookkeeper.metadata.watch import Both
from tallystick.bookkeeper.wire import underreplication as wire
from tallystick.bookkeeper.wire.underreplication import Mark
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import MetadataConflict, MetadataError, NoSuchZnode, ZnodeExists

_MARK = re.compile(r"urL(\d{10,19})", re.ASCII)
_FOLDER = re.compile(r"[0-9a-f]{4}", re.ASCII)
_VOTE = re.compile(r"V_(-?\d{1,10})", re.ASCII)
FOLDERS_DEEP = 4  # above a mark


class Underreplication:
    """The shared tree of one cluster. Every method raises MetadataError."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._store, self._base = driver.store, f"{driver.root}/underreplication"
        self._marks, self._locks = f"{self._base}/ledgers", f"{self._base}/locks"
        self._disable, self._delay = f"{self._base}/disable", f"{self._base}/lostBookieRecoveryDelay"
        self._election = f"{self._base}/auditorelection"

    async def prepare(self) -> None:
        """Make the tree where it is missing. Raises MetadataError for one of another layout."""
        layout_path = f"{self._base}/LAYOUT"
        await self._make(layout_path, wire.encode_layout())
        for folder in (self._marks, self._locks, self._election):
            await self._make(folder, b"")
        if (node := await self._store.get(layout_path)) is not None:
            wire.check_layout(node.data, where=f"{self._store.where}{layout_path}")

    async def _make(self, path: str, data: bytes) -> bool:
        """Make a node. Returns False if there was one."""
        try:
            await self._store.change(Create(path, data))
        except ZnodeExists:
            return False
        return True

    # -- marks --------------------------------------------------------------------------------------------------------

    def _mark_path(self, ledger: LedgerId) -> str:
        digits = f"{ledger:016x}"
        folders = "/".join(digits[at : at + 4] for at in range(0, 16, 4))
        return f"{self._marks}/{folders}/urL{ledger:010d}"

    async def mark(self, ledger: LedgerId, bookies: Collection[BookieId], now_ms: int) -> bool:
        """Say that these bookies lack entries of the ledger. Returns False if that was said already."""
        path = self._mark_path(ledger)
        while True:
            if await self._make(path, wire.encode_mark(Mark(tuple(dict.fromkeys(bookies)), now_ms))):
                return True
            marked = await self.read_mark(ledger)
            if marked is None:  # repaired in between
                continue
            merged = marked.value.with_bookies(bookies, now_ms)
            if merged is marked.value:
                return False
            with contextlib.suppress(MetadataConflict):
                await self._store.change(Update(path, wire.encode_mark(merged), marked.version))
                return True

    async def read_mark(self, ledger: LedgerId) -> Versioned[Mark] | None:
        """Returns None if the ledger is not marked."""
        path = self._mark_path(ledger)
        node = await self._store.get(path)
        if node is None:
            return None
        return Versioned(wire.decode_mark(node.data, where=f"{self._store.where}{path}"), node.version)

    async def marked_of(self, ledgers: Collection[LedgerId]) -> set[LedgerId]:
        """Returns which of these ledgers are marked; name some thousands at once at most."""
        paths = {self._mark_path(ledger): ledger for ledger in ledgers}
        return {paths[path] for path in await self._store.get_many(list(paths))}

    async def unmark(self, ledger: LedgerId, version: Version) -> bool:
        """Take away a mark of this version. Returns False if it is gone, or was written since."""
        path = self._mark_path(ledger)
        try:
            await self._store.change(Delete(path, version))
        except MetadataConflict:
            return False
        with contextlib.suppress(MetadataConflict):  # another ledger's mark is beside it
            for folder in folders_of(self._marks, path):
                await self._store.change(Delete(folder))
        return True

    async def marks(self, after: LedgerId = -1) -> AsyncIterator[LedgerId]:
        """Yields the ids of marked ledgers behind this one, ascending; those that are marked or repaired meanwhile may
        be left out."""
        async for ledger in self._below(self._marks, f"{after + 1:016x}", FOLDERS_DEEP):
            yield ledger

    async def _below(self, folder: str, first: str, depth: int) -> AsyncIterator[LedgerId]:
        """``first``: the digits below this folder of the first id; of none all are taken."""
        names = sorted(await self._store.children(folder) or [])
        if depth == 0:
            for match in filter(None, map(_MARK.fullmatch, names)):
                yield int(match[1])
            return
        for name in filter(_FOLDER.fullmatch, names):
            if name < first[:4]:
                continue
            rest = first[4:] if name == first[:4] else ""
            async for ledger in self._below(f"{folder}/{name}", rest, depth - 1):
                yield ledger

    def watch_marks(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` when the topmost folder of marks changes: the first mark after none, and the last one that
        goes, are seen by that; others are found by looking again."""
        return self._store.watch_children(self._marks, changed)

    # -- locks --------------------------------------------------------------------------------------------------------

    def _lock_path(self, ledger: LedgerId) -> str:
        return f"{self._locks}/urL{ledger:010d}"

    async def lock(self, ledger: LedgerId, holder: str) -> bool:
        """Take the ledger in hand, until ``unlock`` or the end of the session. Returns False if another has it."""
        try:
            await self._store.change(Create(self._lock_path(ledger), wire.encode_lock(holder), ephemeral=True))
        except ZnodeExists:
            return False
        return True

    async def unlock(self, ledger: LedgerId) -> None:
        """Give a lock back that this client has."""
        path = self._lock_path(ledger)
        node = await self._store.get(path)
        if node is not None and node.owner in self._store.owners:
            with contextlib.suppress(NoSuchZnode):
                await self._store.change(Delete(path, node.version))

    async def holds(self, ledger: LedgerId) -> bool:
        """Returns whether this client has the ledger's lock."""
        node = await self._store.get(self._lock_path(ledger))
        return node is not None and node.owner == self._store.owners[-1]

    async def locks(self, tell: Tell = refuse) -> dict[LedgerId, str]:
        """Returns who has which ledger in hand. ``tell`` hears of locks that cannot be read."""
        names = await self._store.children(self._locks) or []
        ledgers = {f"{self._locks}/{name}": int(match[1]) for name in names if (match := _MARK.fullmatch(name))}
        nodes = await self._store.get_many(list(ledgers))
        return dict(decoded(nodes, lambda path, data: (ledgers[path], wire.decode_lock(data, where=path)), tell))

    # -- switches -----------------------------------------------------------------------------------------------------

    async def is_enabled(self) -> bool:
        return await self._store.get(self._disable) is None

    async def disable(self) -> bool:
        """Let nobody mark or repair any more. Returns False if that was so."""
        return await self._make(self._disable, b"")

    async def enable(self) -> bool:
        """Undo ``disable``. Returns False if there was nothing to undo."""
        try:
            await self._store.change(Delete(self._disable))
        except NoSuchZnode:
            return False
        return True

    async def recovery_delay(self) -> Versioned[int] | None:
        """Returns the seconds for which a bookie must be gone. Returns None if nobody said so yet."""
        node = await self._store.get(self._delay)
        if node is None:
            return None
        text = node.data.decode(errors="replace")
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
            raise MetadataError("a delay is a number of seconds", where=self._delay, text=text[:40])
        return Versioned(int(text), node.version, node.creation)

    async def begin_recovery_delay(self, delay_s: int) -> None:
        """Say how long a bookie must be gone, unless somebody said so already."""
        await self._make(self._delay, str(delay_s).encode())

    async def set_recovery_delay(self, delay_s: int) -> None:
        """Say how long a bookie must be gone. The auditor, ours or an original, audits at once when the number is the
        same as before."""
        while True:
            node = await self._store.get(self._delay)
            data = str(delay_s).encode()
            with contextlib.suppress(MetadataConflict):
                await self._store.change(
                    Create(self._delay, data) if node is None else Update(self._delay, data, node.version)
                )
                return

    def watch_switches(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after ``disable``, ``enable`` and a new delay."""
        return Both(*(self._store.watch(path, changed) for path in (self._disable, self._delay)))

    # -- the auditor --------------------------------------------------------------------------------------------------

    async def vote(self, candidate: str) -> str:
        """Enter the election behind all others. Returns the vote's name.

        An original has its number from a counter of ZooKeeper, which is above all that were ever given there; ours is
        one more than the highest vote. Who finds a higher one beside its own came between a look and a vote of another,
        who may be the auditor by now: it withdraws and votes again.
        """
        while True:
            number = max(map(_number, await self.votes()), default=-1) + 1
            name = f"V_{number:010d}"
            path = f"{self._election}/{name}"
            with contextlib.suppress(ZnodeExists):
                await self._store.change(Create(path, wire.encode_vote(candidate), ephemeral=True))
                await self._store.sync()
                if max(map(_number, await self.votes()), default=-1) <= number:
                    return name
                await self.withdraw(name)

    async def votes(self) -> list[str]:
        """Returns the names of all votes, the auditor's first."""
        names = await self._store.children(self._election) or []
        return sorted(filter(_VOTE.fullmatch, names), key=_number)

    async def is_own(self, vote: str) -> bool:
        """Returns whether a vote is there, and this client's."""
        node = await self._store.get(f"{self._election}/{vote}")
        return node is not None and node.owner == self._store.owners[-1]

    async def withdraw(self, vote: str) -> None:
        with contextlib.suppress(NoSuchZnode):
            await self._store.change(Delete(f"{self._election}/{vote}"))

    async def proclaim(self, candidate: str) -> None:
        """Write the auditor's name where the original shows it."""
        node = await self._store.get(self._election)
        if node is not None:
            with contextlib.suppress(MetadataConflict):
                await self._store.change(Update(self._election, wire.encode_vote(candidate), node.version))

    async def auditor(self) -> str | None:
        """Returns who is the auditor, None if nobody is."""
        for vote in await self.votes():
            path = f"{self._election}/{vote}"
            if (node := await self._store.get(path)) is not None:
                return wire.decode_vote(node.data, where=path)
        return None

    def watch_votes(self, changed: Callable[[], None]) -> Watch:
        return self._store.watch_children(self._election, changed)


def _number(vote: str) -> int:
    return int(vote[2:])
