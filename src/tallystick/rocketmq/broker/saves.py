"""The wait of responses for the disk when their requests changed a table: the seam between requests and ``saver``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from tallystick.errors import StorageError
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Events

NO_CHANGE = 0  # the number of none: nothing is waited for

OnSaved = Callable[[StorageError | None], None]
SendCommand = Callable[[Command], None]
T = TypeVar("T")


class Saves(Protocol):
    """``changes`` is read before and after what a request does at a stretch: see ``newest_since``."""

    @property
    def changes(self) -> int:
        """The number of the newest change that a response has to wait for."""
        ...

    def send(
        self, send: SendCommand, response: Command, change: int, failure_code: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> None:
        """``send`` the response when all changes up to the number ``change`` are on the disk: at once if they are.

        A successful response whose changes could not be saved has the code ``failure_code``, and no body, instead.
        """
        ...

    def when_saved(self, done: OnSaved) -> None:
        """Call ``done`` when all changes so far are on the disk, or with the reason why one is not; at once if too many
        wait already."""
        ...


def newest_since(saves: Saves, before: int) -> int:
    """Returns the number of the newest change after number ``before``, or ``NO_CHANGE``."""
    return saves.changes if saves.changes != before else NO_CHANGE


class SavedReply(Reply):
    """A reply that is sent when the changes of its request are on the disk, whatever other requests changed meanwhile.

    The changes of a request are those that are made while its handler runs, or one of its steps.
    """

    __slots__ = ("_before", "_change", "_saves")

    def __init__(self, saves: Saves, link: Link, command: Command, events: Events) -> None:
        super().__init__(link, command, events)
        self._saves, self._change = saves, NO_CHANGE
        self._before: int | None = saves.changes  # None: its handler has returned

    def handled(self) -> None:
        self._note_handler()
        self._before = None

    def steps(self, steps: Iterable[T]) -> Iterator[T]:
        following = iter(steps)
        while True:
            before = self._saves.changes
            try:
                step = next(following)
            except StopIteration:
                return
            finally:
                self._note(before)
            yield step

    def _note_handler(self) -> None:
        if self._before is not None:
            self._note(self._before)

    def _note(self, before: int) -> None:
        self._change = newest_since(self._saves, before) or self._change

    def _send(self, response: Command) -> None:
        self._note_handler()  # which may run still
        self._saves.send(self.link.send, response, self._change)
