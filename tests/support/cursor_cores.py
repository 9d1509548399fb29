"""Cores of cursors over lists of ledgers that are written down in a line."""

from __future__ import annotations

from tallystick.bookkeeper.stream.cursor_core import CursorCore
from tallystick.bookkeeper.stream.entry_counts import EntryCounts
from tallystick.bookkeeper.wire.stream_values import CursorState, Position, StreamInfo, StreamLedger
from tallystick.codec.steps import finished


def counts(*ledgers: tuple[int, int | None]) -> EntryCounts:
    """Of each ledger its id and its entries; None: it is open."""
    listed = (
        StreamLedger(each, has_counts=False) if entries is None else StreamLedger(each, entries, 1, 1)
        for each, entries in ledgers
    )
    return EntryCounts(StreamInfo(tuple(listed)))


def cursor(*ledgers: tuple[int, int | None], mark: Position | None = None, known: int = 0) -> CursorCore:
    core = CursorCore(counts(*ledgers), mark or Position(ledgers[0][0], -1))
    if ledgers[-1][1] is None:
        core.learned(ledgers[-1][0], known)
    return core


def restored(counts: EntryCounts, ends: dict[int, int], state: CursorState) -> CursorCore:
    return finished(CursorCore.restored(counts, ends, state))


def ack(core: CursorCore, *positions: str, size: int = 0) -> None:
    for position in positions:
        core.ack(Position.parse(position), size)
