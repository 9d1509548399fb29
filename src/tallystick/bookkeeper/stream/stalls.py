"""When the open ledger of a stream counts as failed though its writer still tries: nothing of what was sent is stored.

Bookies may be connected and not answer. A writer goes on without them for ``no_quorum_s``, and the next ledger may have
the same bookies; but appends wait for ``max_pending_s`` and no longer. That time begins anew with each entry that is
stored, and a ledger has as long as a bookie may take to answer in any case.
"""

from __future__ import annotations

import math

from tallystick.bookkeeper.ledger.running_time import BEAT_S, SLACK_S
from tallystick.bookkeeper.stream.append_flow import AppendFlow
from tallystick.bookkeeper.stream.rollover import RollOverCore
from tallystick.errors import NotEnoughBookies, TallyError


class Stalls:
    """Decide it for one stream, by what its flow and its core say. Ask ``is_over`` when the time has come."""

    __slots__ = ("_answer_s", "_core", "_flow", "_is_late", "_patience_s", "is_watched")

    def __init__(self, flow: AppendFlow, core: RollOverCore, *, patience_s: float, answer_s: float) -> None:
        """``answer_s``: so long a bookie may take to answer, and then it is replaced."""
        self._flow, self._core, self._patience_s, self._answer_s = flow, core, patience_s, answer_s
        self._is_late = False
        self.is_watched = False  # somebody looks in time

    def due_at(self, now: float) -> float:
        """Returns when to look, infinity if no entry is under way. Next: ``is_over``, then or before."""
        at = self._over_at()
        self.is_watched = at < math.inf
        return at if at > now or at == math.inf else now + BEAT_S

    def is_over(self, now: float) -> bool:
        """Whether nothing was stored for too long. Next, if so: ``end_ledger``."""
        at, self.is_watched = self._over_at(), False
        if now < at:
            self._is_late = False
        elif now - at <= SLACK_S or self._is_late:
            return True
        else:
            self._is_late = True  # the loop stood still: responses may lie in the sockets
        return False

    def end_ledger(self) -> TallyError:
        """End the writer: what was sent and is not stored comes back when the ledger is closed, or fails. Returns why.

        Only when it ``is_over``.
        """
        writer = self._flow.writer
        assert writer is not None, "entries are under way"
        self._core.stalled()
        failure = NotEnoughBookies(
            "bookies stored no append in time: look which do not answer (tally bookie list), and append again",
            stream=self._flow.stream,
            ledger=writer.id,
            missing=writer.missing,
            waited_s=self._patience_s,
        )
        writer.give_up(failure)
        return failure

    def _over_at(self) -> float:
        since = self._flow.waits_since
        if since is None or not self._core.can_stall:
            return math.inf
        return max(since + self._patience_s, self._core.opened_at) + self._answer_s
