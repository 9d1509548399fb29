"""The wait of a consumer's loop for messages, and for room when it has all that it may have unacknowledged."""

from __future__ import annotations

import asyncio

from tallystick.rocketmq.client.delivery import DeliveryCore
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.runtime.events import Events


class ReadyMessages:
    """``wait``, then take messages from the core. ``arrived`` is set when messages are ready, or none can come;
    ``room`` when readers may pull again. ``is_closed``: no more messages are handed out."""

    def __init__(self, events: Events, group: str, core: DeliveryCore) -> None:
        self._events, self._group, self._core = events, group, core
        self.arrived, self.room = asyncio.Event(), asyncio.Event()
        self._failure: Exception | None = None
        self._stall_is_reported = False
        self.is_closed = False

    def fail(self, error: Exception) -> None:
        """End the wait with an error, behind the messages that are here."""
        if self._failure is None:
            self._failure = error
        self.arrived.set()

    def close(self) -> None:
        """Drop the messages that are ready, and end the wait."""
        self.is_closed = True
        self._core.ready.clear()
        self.arrived.set()

    async def wait(self) -> bool:
        """Wait for a message. Returns False when the consumer is closed. Raises why it cannot go on."""
        while not self._core.ready or self.is_closed:
            if self._failure is not None:
                raise self._failure
            if self.is_closed:
                return False
            if self._core.is_stalled and not self._stall_is_reported:
                self._stall_is_reported = True
                self._events.emit("waits for acknowledgements", group=self._group)
            self.arrived.clear()
            await self.arrived.wait()
        return True

    async def wait_for(self, count: int) -> None:
        """Wait until ``count`` messages are ready, or no more can come before some are acknowledged."""
        while len(self._core.ready) < count and not (self._core.is_stalled or self.is_closed or self._failure):
            self.arrived.clear()
            await self.arrived.wait()

    def make_room(self) -> None:
        """Messages were acknowledged: let readers that wait for room go on."""
        self._stall_is_reported = False
        self.let_readers_go_on()

    def let_readers_go_on(self) -> None:
        """There is room, or a queue less that waits for it."""
        self._core.room_made = False
        self.room.set()

    def acknowledged(self, is_ours: bool, message: ReceivedMessage) -> None:
        """A message was acknowledged or given back. ``is_ours`` is False if the consumer does not have it any more."""
        if not is_ours:
            fields = {"group": self._group, "queue": message.queue, "offset": message.offset}
            self._events.emit("acknowledgement ignored", **fields)
        if self._core.room_made:
            self.make_room()
        if self._core.ready:
            self.arrived.set()
