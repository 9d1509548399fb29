"""What tests of a bookie connection share: a listener to a channel, frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import master_key

if TYPE_CHECKING:
    from unit.bookkeeper.ledger.conftest import Bench

KEY = master_key(b"")


class AddLog:
    """What a channel reported, call by call."""

    def __init__(self) -> None:
        self.acked: list[list[int]] = []
        self.failed: list[tuple[list[int], int | None]] = []

    def on_acked(self, slot: int, entries: list[int]) -> None:
        self.acked.append(list(entries))

    def on_failed(self, slot: int, entries: list[int], code: int | None) -> None:
        self.failed.append((list(entries), code))

    @property
    def all_acked(self) -> list[int]:
        return [entry for entries in self.acked for entry in entries]

    @property
    def all_failed(self) -> list[int]:
        return [entry for entries, _ in self.failed for entry in entries]


def entry_of(request: v2.Request) -> int:
    """The entry that an ADD or READ is about."""
    assert isinstance(request, v2.AddFrame | v2.ReadFrame)
    return request.entry


def answering(code: Code, data: bytes = b"") -> Callable[[v2.Request], bytes]:
    """A script: this to every ADD and READ."""

    def answer(request: v2.Request) -> bytes:
        assert isinstance(request, v2.AddFrame | v2.ReadFrame)
        return v2.encode_response(request, code, data)

    return answer


def holding(held: list[v2.AddFrame]) -> Callable[[v2.Request], None]:
    """A script: no answer to an ADD, which is kept."""

    def hold(request: v2.Request) -> None:
        assert isinstance(request, v2.AddFrame)
        held.append(request)

    return hold


def add_frame(bench: Bench, ledger: int, entry: int, payload: bytes = b"x") -> bytes:
    return v2.AddFrame(ledger, entry, KEY, bench.entry(ledger, entry, payload)).encode()


def ok(ledger: int, entry: int, code: Code = Code.OK) -> bytes:
    return v2.encode_response(v2.AddFrame(ledger, entry, KEY, b""), code)
