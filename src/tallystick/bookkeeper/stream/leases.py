"""Leases (Q19): who owns a stream or a cursor, as long as its client lives.

A lease is an ephemeral node with ``{"owner": …, "since_ms": …}``. All leases of a client are in one session of their
own, which is made when the first is taken, so that its time-out is another than that of the client's other calls. A
lease only elects: what protects a stream are fences and compare-and-set.

One alarm looks after all of them. When the session was lost all nodes are made again, unless others own them by now;
else some are looked at in each turn, so that an owner that does nothing hears that it was taken over, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.metadata.store import Change, Create, Delete, MetadataStore, Owner, Znode
from tallystick.errors import (
    MetadataConflict,
    MetadataError,
    MetadataUncertain,
    NoSuchZnode,
    StreamOwned,
    UsageError,
)
from tallystick.runtime.alarm import Alarm
from tallystick.runtime.tasks import watch

LOOKS = 3  # in the time of a lease
LOOKED_AT = 256  # leases in one turn
CHANGED_AT_ONCE = 64  # nodes that are made again at one time
LOOKS_AT_ONCE = 64  # streams whose owners look at one time whether they were another's meanwhile
ATTEMPTS = 10  # to take a lease while others take it and give it back
LONGEST_NODE = 4096  # bytes of a node that are read


@dataclass(eq=False, slots=True)
class Lease:
    """A lease that this client holds, or held."""

    path: str
    data: bytes
    is_held: bool = True
    taken_from: str | None = None  # who had it until it was taken over
    before: str = ""  # how the owner before lost what it is for, in words
    lost: Callable[[], None] | None = None  # called once, when another owner has it
    # Called when nobody had it for a while, this client too, and this one has it again: another owner may have been
    # there meanwhile.
    regained: Callable[[], None] | None = None


@dataclass(frozen=True)
class Owning:
    """What a node says of its owner."""

    owner: str | None
    since_ms: int | None

    @classmethod
    def of(cls, data: bytes) -> Owning:
        """Returns Nones for what others wrote there."""
        with contextlib.suppress(ValueError, UnicodeDecodeError, RecursionError):
            fields: Any = json.loads(data[:LONGEST_NODE])
            if isinstance(fields, dict):
                owner, since_ms = fields.get("owner"), fields.get("since_ms")
                return cls(owner if isinstance(owner, str) else None, since_ms if isinstance(since_ms, int) else None)
        return cls(None, None)


class Leases:
    """The leases of a client. Must be made on the running event loop; ``close`` it."""

    def __init__(self, context: LedgerContext, owner: str, lease_s: float) -> None:
        self.owner = owner
        self._context, self._lease_s = context, lease_s
        self.looks = asyncio.Semaphore(LOOKS_AT_ONCE)  # for owners that regained their lease: all do at one time
        self._opening = asyncio.Lock()
        self._store: MetadataStore | None = None
        self._held: dict[str, Lease] = {}
        self._taking: set[str] = set()
        self._session: tuple[int, Sequence[Owner]] | None = None  # in which all leases were seen last
        self._turn: deque[str] = deque()  # those that this round still looks at
        self._alarm = Alarm(context.clock, self._look_soon)
        self._looking: asyncio.Task[None] | None = None
        self._returning: dict[str, asyncio.Task[None]] = {}  # leases that are given back
        self._is_closed = False

    async def take(self, path: str, *, takeover: bool = False, wait_s: float = 0.0, **subject: str) -> Lease:
        """Take the lease at ``path``. Raises StreamOwned with the ``subject`` when another has it, also another handle
        of this client, and it was not given back within ``wait_s``; MetadataError.

        ``takeover``: whoever has it has it no more. Set ``lost`` and ``regained`` of the lease to
        hear when that happens to it.
        """
        store = await self._opened()
        deadline = self._context.clock.now() + wait_s
        change_event = asyncio.Event()
        watching = store.watch(path, change_event.set) if wait_s and not takeover else None
        try:
            while True:
                change_event.clear()
                try:
                    return await self._take(store, path, takeover, subject)
                except StreamOwned:
                    remaining_s = deadline - self._context.clock.now()
                    if watching is None or remaining_s <= 0:
                        raise
                # An expiry may not be told: by no event, or by one that waits until our own connection is back.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(remaining_s, self._lease_s / LOOKS)):
                        await change_event.wait()
        finally:
            if watching is not None:
                watching.cancel()

    async def _opened(self) -> MetadataStore:
        async with self._opening:
            if self._is_closed:
                raise UsageError("this client is closed")
            if self._store is None:
                self._store = await self._context.driver.store.another(session_timeout_s=self._lease_s)
            return self._store

    async def _take(self, store: MetadataStore, path: str, takeover: bool, subject: dict[str, str]) -> Lease:
        while (returning := self._returning.get(path)) is not None:
            await asyncio.wait([returning])
        held_lease = self._held.get(path)
        if path in self._taking or (held_lease is not None and not takeover):
            raise StreamOwned("another handle of this client owns it", owner=self.owner, **subject)
        data = json.dumps({"owner": self.owner, "since_ms": self._context.clock.wall_ms()}).encode()
        self._taking.add(path)
        try:
            taken_from = await self._make(store, path, data, takeover, subject)
        except BaseException:
            self._return(path, data)  # nobody would give back what was made all the same
            raise
        finally:
            self._taking.discard(path)
        if held_lease is not None:
            self._lose(held_lease)
            taken_from = self.owner
        lease = self._held[path] = Lease(path, data, taken_from=taken_from)
        self._alarm.set(self._context.clock.now() + self._lease_s / LOOKS)
        return lease

    async def _make(
        self, store: MetadataStore, path: str, data: bytes, takeover: bool, subject: dict[str, str]
    ) -> str | None:
        """Make our node. Returns who had one there, None if nobody had. Raises StreamOwned, MetadataError."""
        taken_from: str | None = None
        for _ in range(ATTEMPTS):
            node = await store.get(path)
            if node is not None and node.owner == store.owners[-1] and node.data == data:
                return taken_from  # the response was lost
            if node is not None and node.owner not in store.owners:
                owning = Owning.of(node.data)
                if not takeover:
                    raise StreamOwned(owner=owning.owner, since_ms=owning.since_ms, **subject)
                taken_from = owning.owner or "somebody"
            if await _replace(store, path, data, node):
                return taken_from
            await store.sync()
        raise StreamOwned("several clients take it over at the same time", **subject)

    async def is_held(self, lease: Lease) -> bool:
        """Whether the lease is this client's, as of now. Raises MetadataUnavailable when nobody can tell."""
        store = self._store
        if store is None or not lease.is_held:
            return False
        await store.sync()
        await self._look_at(store, [lease.path])
        return lease.is_held

    async def give_back(self, lease: Lease) -> None:
        """Let others have it at once. Raises MetadataError: then they have it when the session ends."""
        if (returning := self.give_back_soon(lease)) is not None:
            await asyncio.shield(returning)

    def give_back_soon(self, lease: Lease) -> asyncio.Task[None] | None:
        """The same for who cannot wait. Returns None if it is not this client's any more."""
        if not lease.is_held:
            return None
        lease.is_held = False
        del self._held[lease.path]
        return self._return(lease.path, lease.data)

    def _return(self, path: str, data: bytes) -> asyncio.Task[None]:
        """Delete our node. Who takes the lease waits for it."""

        async def remove() -> None:
            try:
                if (store := self._store) is not None:
                    node = await store.get(path)
                    if node is not None and node.owner in store.owners and node.data == data:
                        with contextlib.suppress(NoSuchZnode):
                            await store.change(Delete(path, node.version))
            finally:
                del self._returning[path]

        task = self._returning[path] = asyncio.get_running_loop().create_task(remove())
        watch([task], lambda error: None)  # then it ends with the session
        return task

    async def close(self) -> None:
        """End the session: all leases are given back at once. Raises MetadataError."""
        self._is_closed = True
        self._alarm.cancel()
        if self._looking is not None:
            self._looking.cancel()
        await asyncio.gather(*self._returning.values(), *filter(None, [self._looking]), return_exceptions=True)
        async with self._opening:
            store, self._store = self._store, None
        for lease in self._held.values():
            lease.is_held = False
        self._held.clear()
        if store is not None:
            await store.close()

    # -- looking after them -------------------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        if self._is_closed or not self._held or self._store is None:
            return  # the next one that is taken sets the alarm
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(self._store))
        self._alarm.set(self._context.clock.now() + self._lease_s / LOOKS)

    async def _look(self, store: MetadataStore) -> None:
        """Look at all leases after a break of the session or connection, and else at the next ones of the round."""
        session = store.generation, tuple(store.owners)
        if not self._turn or session != self._session:
            self._turn = deque(self._held)
        looks = len(self._turn) if session != self._session else LOOKED_AT
        with contextlib.suppress(MetadataError):  # the next look is soon
            while self._turn and looks > 0:
                paths = [self._turn.popleft() for _ in range(min(len(self._turn), LOOKED_AT))]
                looks -= len(paths)
                await self._look_at(store, paths)
            self._session = session

    async def _look_at(self, store: MetadataStore, paths: Iterable[str]) -> None:
        """Make again what our lost session took with it, and lose what others have. Raises MetadataError."""
        for _ in range(ATTEMPTS):
            leases = [lease for path in paths if (lease := self._held.get(path)) is not None]
            nodes = await store.get_many([lease.path for lease in leases])
            paths = []
            for at in range(0, len(leases), CHANGED_AT_ONCE):
                some = leases[at : at + CHANGED_AT_ONCE]
                kept = await asyncio.gather(*(self._keep(store, lease, nodes.get(lease.path)) for lease in some))
                paths += [lease.path for lease, is_kept in zip(some, kept, strict=True) if not is_kept]
            if not paths:
                return
            await store.sync()  # others have them, or had: it was read too early

    async def _keep(self, store: MetadataStore, lease: Lease, node: Znode | None) -> bool:
        """Returns False if the node is not what it was when it was read."""
        if node is not None and node.owner == store.owners[-1] and node.data == lease.data:
            return True
        if lease.path in self._taking or self._held.get(lease.path) is not lease:
            return True
        if node is None or node.owner in store.owners:
            if not await _replace(store, lease.path, lease.data, node):
                return False
            if lease.is_held and lease.regained is not None:
                lease.regained()
            return True
        self._lose(lease)
        return True

    def _lose(self, lease: Lease) -> None:
        if self._held.get(lease.path) is lease:
            del self._held[lease.path]
        lease.is_held = False
        self._context.events.emit("lease lost", path=lease.path)
        if lease.lost is not None:
            lease.lost()


async def _replace(store: MetadataStore, path: str, data: bytes, node: Znode | None) -> bool:
    """Make our node in place of ``node``. Returns False if that is not what is there, or nobody knows: look again."""
    changes: list[Change] = [] if node is None else [Delete(path, node.version)]
    try:
        await store.change(*changes, Create(path, data, ephemeral=True))
    except (MetadataConflict, MetadataUncertain):
        return False
    return True
