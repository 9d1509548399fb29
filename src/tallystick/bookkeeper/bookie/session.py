"""One connection to a bookie: whole frames to the requests, answers to the socket, both bounded.

A peer that does not take its answers is not read; one that sends half a frame costs that half and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.requests import Requests
from tallystick.errors import RemoteProtocolError
from tallystick.runtime.network import no_delay

WRITE_HIGH_BYTES = 1024 * 1024
ARENA_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Surroundings:
    """What a bookie's connections share. ``opened`` and ``closed`` hear of each, ``refused`` hears whom and why."""

    requests: Requests
    committer: Committer
    arena: bytearray  # every read lands here; whole frames are copied out once
    opened: Callable[[Session], None]
    closed: Callable[[Session], None]
    refused: Callable[[str, RemoteProtocolError], None]
    unfinished: Callable[[int], None]  # hears of bytes more (or less) that wait for the rest of their frame


class Session(asyncio.BufferedProtocol):
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._loop = asyncio.get_running_loop()
        self._chunks: list[bytes] = []  # received and not yet used: less than a frame, or what must wait
        self._size = 0
        self._need = 1  # so many bytes make it worthwhile to look
        self.unfinished = 0  # bytes that wait for the rest of their frame
        self._unsent = False  # the peer does not take its answers
        self._congested = False  # too much waits for the disk
        self._yielded = False  # other connections come first
        self._reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        no_delay(transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else "unknown"
        self._around.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._forget()
        self._around.closed(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._around.arena

    def buffer_updated(self, nbytes: int) -> None:
        self._chunks.append(bytes(memoryview(self._around.arena)[:nbytes]))
        self._size += nbytes
        self._pump()

    def eof_received(self) -> None:
        """Nothing more will come; the transport closes when its answers are out."""

    def pause_writing(self) -> None:
        self._unsent = True
        self._watch_flow()

    def resume_writing(self) -> None:
        self._unsent = False
        self._pump()

    def resume(self) -> None:
        self._congested = False
        self._pump()

    def deliver(self, answers: Sequence[bytes]) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(answers)

    def abort(self) -> None:
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        """What was received is of no use any more."""
        self._chunks, self._size, self._need = [], 0, 1
        self._account()

    def _account(self) -> None:
        waits = self._size if self._size < self._need else 0
        if waits != self.unfinished:
            change, self.unfinished = waits - self.unfinished, waits
            self._around.unfinished(change)

    def _pump(self) -> None:
        """Serve what there is, one bounded call a turn, unless something stands in the way."""
        if self._size >= self._need and not (self._unsent or self._congested or self._yielded):
            self._serve()
        self._account()
        self._watch_flow()

    def _serve(self) -> None:
        if self._transport.is_closing():
            return
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        served = self._around.requests.serve(data)
        if served.position == len(data):
            self._chunks, self._size = [], 0
        else:
            self._chunks = [data[served.position :]]
            self._size = len(data) - served.position
        self._need = served.need or 1
        if served.at_once:
            self._transport.writelines(served.at_once)
        if served.when_durable:
            self._around.committer.hold(self, served.when_durable)
        if served.refused is not None:
            self._chunks, self._size = [], 0
            self._around.refused(self.peer, served.refused)
            self._transport.close()
        elif self._around.committer.congested:
            self._congested = True
            self._around.committer.block(self)
        elif self._size >= self._need:
            self._yielded = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._yielded = False
        self._pump()

    def _watch_flow(self) -> None:
        wanted = not (self._unsent or self._congested or self._yielded)
        if wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
