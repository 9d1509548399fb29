"""What the programs of a simulated stream share: its plan, who judges it, and what of it is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import (
    LedgerError,
    MetadataError,
    NotEnoughBookies,
    RecoveryIncomplete,
    StreamFenced,
    StreamOwned,
    Unavailable,
)
from tallystick.sim.streams_judge import StreamsJudge
from tallystick.sim.streams_plan import StreamsPlan

T = TypeVar("T")

AGAIN_S = 0.3
FUTILE = (Unavailable, MetadataError, RecoveryIncomplete, NotEnoughBookies, LedgerError)  # it may go better later


class Shared:
    """One stream, as the programs that use it know it."""

    def __init__(self, plan: StreamsPlan, judge: StreamsJudge, rng: random.Random) -> None:
        self.plan, self.judge, self.random = plan, judge, rng
        self.is_over = asyncio.Event()  # nothing goes wrong any more: end what was begun
        self.is_read = asyncio.Event()  # who follows has all, or never will
        self.followed: dict[str, Position] = {}  # how far each follower is
        self._terminated_at = plan.terminated_at
        self.deletions = [*plan.deletions]  # when the stream is to be deleted, and is not yet

    def chance(self) -> random.Random:
        """Returns a source of chance for one program alone."""
        return random.Random(self.random.getrandbits(64))

    def takes_end(self) -> bool:
        """Returns whether who asks is to terminate the stream: one, at its time."""
        if self._terminated_at is None or asyncio.get_running_loop().time() < self._terminated_at:
            return False
        self._terminated_at = None
        return True

    @property
    def settings(self) -> StreamSettings:
        """Those of every owner."""
        plan = self.plan
        ensemble, write_quorum, ack_quorum = plan.shape
        return StreamSettings(
            ensemble=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            max_entries_per_ledger=plan.max_entries,
            max_ledger_age_s=plan.max_age_s,
            retention_s=plan.retention_s,
            ttl_s=plan.ttl_s,
            backlog_quota_bytes=plan.quota_bytes,
            backlog_policy=plan.quota_policy,
            entry_format="raw" if plan.has_chunks else plan.entry_format,
            compression=plan.compression,
        )


async def again(call: Callable[[], Awaitable[T]]) -> T:
    """Returns what the call returns at last."""
    while True:
        try:
            return await call()
        except (*FUTILE, StreamOwned, StreamFenced):
            await asyncio.sleep(AGAIN_S)
