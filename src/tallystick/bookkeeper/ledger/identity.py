"""From whom responses count: an empty bookie at an old address is not the one that has the ledger (#4812).

A bookie is its cookie's creation. It is read, synced, over the metadata after each connect and before the first answer
to an add counts: whoever listens now was stamped before. The identity that counts is the one that the bookie had when
it was chosen, before the metadata named it: a writer may sleep between that and its first connection. Where nobody
asked then, it is the one that a channel met first.

That read also finds where the bookie is registered. Its session may have ended between the moment in which the client
learnt its address and that in which it connected, and another bookie may listen there by then, whose cookie nobody
read: its acks, its "no such entry", its fences would count as those of the one that is named. A bookie registers after
it has bound its port, and one of ours serves a port only when nobody else is registered there (``bookie/address.py``).
So who is registered at an address after the connection to it was made is who accepted that: it had the port then, and
has it still. A connection that was found to be right stays so for what was written over it before. But a process may
hang, or be cut off from the metadata, while its bookie rejoins elsewhere with another disk: the one that is registered
is in limbo with all ledgers of before, and denies what the other acknowledges of a new one. So whose connection it is
is read again, before anything new counts, once the registrations have changed: the client hears of that before it
hears that its own later change of the metadata was made. One that leads elsewhere ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tallystick.bookkeeper.metadata.driver import BookiePresence
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, EntryId

Address = tuple[str, int]
Identify = Callable[[BookieId], Awaitable[BookiePresence]]


class Unidentified:
    """The identity could not be read: nobody knows whose responses these are."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


Identity = Creation | None | Unidentified  # None: the bookie has no cookie, which is an identity too
IdentityCallback = Callable[[Identity], None]

ANOTHER_BOOKIE = "another bookie took its id: it does not have what was written before"
MOVED = "it is registered at {}:{} now"
NOT_REGISTERED = "it is not registered any more, so another bookie may have its address"


class LinkIdentity:
    """Who is at the other end of one link; asked for when the first response is to count.

    ``connected`` ends with the attempt to connect and returns the address; ``timeout_s`` bounds the request;
    ``moved`` hears that the bookie is registered elsewhere: another connection would lead to it.
    """

    def __init__(
        self,
        bookie: BookieId,
        identify: Identify,
        connected: Callable[[], Awaitable[Address | None]],
        moved: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._bookie, self._identify, self._connected, self._timeout_s = bookie, identify, connected, timeout_s
        self._moved = moved
        self._callbacks: list[IdentityCallback] = []
        self._asking: asyncio.Task[None] | None = None
        self._identity: tuple[Creation | None] | None = None
        self._is_stale = False  # what is being read

    def registrations_changed(self) -> None:
        """Who asks from now on hears what was read after this."""
        self._identity, self._is_stale = None, True

    def ask(self, callback: IdentityCallback) -> None:
        """``callback`` is called once: at once when it is known, else later on the loop."""
        if self._identity is not None:
            callback(self._identity[0])
            return
        self._callbacks.append(callback)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        identity: Identity
        try:
            address = await self._connected()
            async with asyncio.timeout(self._timeout_s):
                self._is_stale = True
                while self._is_stale:
                    self._is_stale = False
                    presence = await self._identify(self._bookie)
            identity = self._judge(presence, address)
        except TimeoutError:  # the next channel that asks tries again
            identity = Unidentified("the metadata did not answer in time")
        except Exception as error:  # whatever it is, acks wait for a response
            identity = Unidentified(str(error) or type(error).__name__)
        finally:
            self._asking = None
        self._tell(identity)

    def _judge(self, presence: BookiePresence, address: Address | None) -> Identity:
        """Return the identity, if the bookie is registered where the link leads."""
        if presence.address == address:
            self._identity = (presence.creation,)
            return presence.creation
        if presence.address is None:  # it may be itself, and register again: this link is asked about again then
            return Unidentified(NOT_REGISTERED)
        reason = MOVED.format(*presence.address)
        asyncio.get_running_loop().call_soon(self._moved, reason)  # when those who wait have heard it
        return Unidentified(reason)

    def _tell(self, identity: Identity) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(identity)

    def close(self) -> None:
        """End with the link: an identity that is not known now never will be."""
        if self._asking is not None:
            self._asking.cancel()
        self._tell(Unidentified("the connection ended"))


class Belief:
    """Decide which acks of one place in an ensemble count, over all its channels."""

    __slots__ = ("_expected_identity", "_held_entries", "_is_doubted")

    def __init__(self, expected_identity: tuple[Creation | None] | None = None) -> None:
        self._expected_identity = expected_identity  # None: the first identity will be
        self._held_entries: list[EntryId] | None = None  # acks of a link whose identity is not known yet
        self._is_doubted = False

    def expects(self, identity: Creation | None) -> bool:
        """Return whether acks of a bookie with this identity would count."""
        return self._expected_identity is None or self._expected_identity == (identity,)

    @property
    def expected_identity(self) -> tuple[Creation | None] | None:
        """The identity that counts, None while that is not known."""
        return self._expected_identity

    @property
    def is_quiet(self) -> bool:
        """Whether no ack waits for its identity, and none was refused."""
        return not (self._held_entries or self._is_doubted)

    def linked(self) -> None:
        """A link was made: nothing that comes over it counts yet."""
        self._held_entries, self._is_doubted = [], False

    def acked(self, entries: list[EntryId]) -> bool | None:
        """Return whether these acks count, None if they are held until ``identified``."""
        if self._is_doubted:
            return False
        if self._held_entries is None:
            return True
        self._held_entries += entries
        return None

    def identified(self, identity: Identity) -> tuple[bool, list[EntryId]]:
        """Return whether acks over this link count, and the acks that were held so far."""
        entries, self._held_entries = self._held_entries or [], None
        if not isinstance(identity, Unidentified) and self._expected_identity is None:
            self._expected_identity = (identity,)
        self._is_doubted = isinstance(identity, Unidentified) or self._expected_identity != (identity,)
        return not self._is_doubted, entries
