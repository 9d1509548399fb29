"""What answers wait for when their requests changed a table: the seam between requests and ``saver``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tallystick.errors import StorageError
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Events

NEVER = -1  # no number of a change: all that there were are waited for

Done = Callable[[StorageError | None], None]
Send = Callable[[Command], None]


class Saves(Protocol):
    """``changes`` is read before a request, and given back with its answer."""

    @property
    def changes(self) -> int:
        """Steps at each change that an answer has to wait for."""
        ...

    def send(self, send: Send, answer: Command, since: int, unsaved: ResponseCode = ResponseCode.SYSTEM_ERROR) -> None:
        """``send`` the answer when all changes after number ``since`` are on the disk: at once if there were none.

        A good answer whose changes could not be saved has the code ``unsaved`` instead.
        """
        ...

    def when_saved(self, done: Done) -> None:
        """Call ``done`` when all changes so far are on the disk, or with the reason why one is not; at once if too many
        wait already."""
        ...


class SavedReply(Reply):
    """The answer goes out when what was changed up to it, since its request came, is on the disk."""

    __slots__ = ("_saves", "_since")

    def __init__(self, saves: Saves, link: Link, command: Command, events: Events) -> None:
        super().__init__(link, command, events)
        self._saves, self._since = saves, saves.changes

    def _send(self, answer: Command) -> None:
        self._saves.send(self.link.send, answer, self._since)
