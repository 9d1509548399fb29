"""What answers wait for when their requests changed a table: the seam between requests and ``saver``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tallystick.errors import StorageError
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode

NEVER = -1  # no number of a change: all that there were are waited for

Done = Callable[[StorageError | None], None]


class Saves(Protocol):
    """``changes`` is read before a request, and given back with its answer."""

    @property
    def changes(self) -> int:
        """Steps at each change that an answer has to wait for."""
        ...

    def send(self, link: Link, answer: Command, since: int, unsaved: ResponseCode = ResponseCode.SYSTEM_ERROR) -> None:
        """Send the answer when all changes after number ``since`` are on the disk: at once if there were none.

        A good answer whose changes could not be saved has the code ``unsaved`` instead.
        """
        ...

    def when_saved(self, done: Done) -> None:
        """Call ``done`` when all changes so far are on the disk, or with the reason why one is not; at once if too many
        wait already."""
        ...
