"""From whom acknowledgements count: an empty bookie at an old address is not the one that has the ledger (#4812).

A bookie is its cookie's creation. It is read, synced, over the metadata after each connect and before the first answer
to an add counts: whoever listens now was stamped before. The identity that counts is the one that the bookie had when
it was chosen, before the metadata named it: a writer may sleep between that and its first connection. Where nobody
asked then, it is the one that a channel met first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, EntryId

Identify = Callable[[BookieId], Awaitable[Creation | None]]


class Unidentified:
    """The identity could not be read: nobody knows whose answers these are."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


Identity = Creation | None | Unidentified  # None: the bookie has no cookie, which is an identity too
Answered = Callable[[Identity], None]

ANOTHER_BOOKIE = "another bookie took its id: it does not have what was written before"


class LinkIdentity:
    """Who is at the other end of one link; asked for when the first channel wants to know.

    ``connected`` ends with the attempt to connect; ``timeout_s`` bounds the question.
    """

    def __init__(
        self, bookie: BookieId, identify: Identify, connected: Callable[[], Awaitable[object]], timeout_s: float
    ) -> None:
        self._bookie, self._identify, self._connected, self._timeout_s = bookie, identify, connected, timeout_s
        self._waiting: list[Answered] = []
        self._asking: asyncio.Task[None] | None = None
        self._known: tuple[Creation | None] | None = None

    def ask(self, answered: Answered) -> None:
        """``answered`` is called once: at once when it is known, else later on the loop."""
        if self._known is not None:
            answered(self._known[0])
            return
        self._waiting.append(answered)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        identity: Identity
        try:
            await self._connected()
            async with asyncio.timeout(self._timeout_s):
                identity = await self._identify(self._bookie)
            self._known = (identity,)
        except TimeoutError:  # the next channel that asks tries again
            identity = Unidentified("the metadata did not answer in time")
        except Exception as error:  # whatever it is, acks wait for an answer
            identity = Unidentified(str(error) or type(error).__name__)
        finally:
            self._asking = None
        self._tell(identity)

    def _tell(self, identity: Identity) -> None:
        waiting, self._waiting = self._waiting, []
        for answered in waiting:
            answered(identity)

    def close(self) -> None:
        """The link has ended: what is not known now is never known."""
        if self._asking is not None:
            self._asking.cancel()
        self._tell(Unidentified("the connection ended"))


class Belief:
    """Which acks of one place in an ensemble count, over all its channels. Decides; see the module."""

    __slots__ = ("_doubted", "_expected", "_held")

    def __init__(self, expected: tuple[Creation | None] | None = None) -> None:
        self._expected = expected  # None: the first identity will be
        self._held: list[EntryId] | None = None  # acks of a link whose identity is not known yet
        self._doubted = False

    def expects(self, identity: Creation | None) -> bool:
        """Whether acks of this one would count."""
        return self._expected is None or self._expected == (identity,)

    @property
    def expected(self) -> tuple[Creation | None] | None:
        """The one that counts, or None when that is not known yet."""
        return self._expected

    @property
    def is_quiet(self) -> bool:
        """No ack waits for its identity, and none was refused."""
        return not (self._held or self._doubted)

    def linked(self) -> None:
        """A new link: nothing that comes over it counts yet."""
        self._held, self._doubted = [], False

    def acked(self, entries: list[EntryId]) -> bool | None:
        """Whether these count; None: they are held until ``identified``."""
        if self._doubted:
            return False
        if self._held is None:
            return True
        self._held += entries
        return None

    def identified(self, identity: Identity) -> tuple[bool, list[EntryId]]:
        """Whether acks over this link count, and the ones held so far."""
        held, self._held = self._held or [], None
        if not isinstance(identity, Unidentified) and self._expected is None:
            self._expected = (identity,)
        self._doubted = isinstance(identity, Unidentified) or self._expected != (identity,)
        return not self._doubted, held
