"""What a Pulsar broker with its default settings deletes of a stream that it is given as it is.

A broker closes the newest ledger and makes another one. Then it deletes the closed ledgers at the front that no
subscription needs and retention does not keep (``ManagedLedgerImpl.internalTrimLedgers``), and a topic that nobody uses
(``PersistentTopic.checkGC``). What time will delete counts as deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.stream.retention import trimmable
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.pulsar_policies import UNLIMITED, NamespacePolicies
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger

_FAR_FUTURE_MS = 1 << 62


@dataclass(frozen=True)
class BrokerDeletions:
    """What a broker would delete: ``ledgers`` once retention lets it, and all with the topic after ``topic_after_s``
    without use (None: never). It is true if there is anything. ``cursor_keeps``: a durable cursor at the beginning
    would keep all of it."""

    ledgers: tuple[StreamLedger, ...] = ()
    topic_after_s: int | None = None
    retention_s: int = 0  # how long a ledger that nobody needs is kept; UNLIMITED: there is too much of them
    has_cursors: bool = False
    cursor_keeps: bool = False

    def __bool__(self) -> bool:
        return bool(self.ledgers) or self.topic_after_s is not None

    def __str__(self) -> str:
        parts = []
        if self.topic_after_s is not None:
            why = "" if self.has_cursors else ", as it has no durable cursor"
            parts.append(f"the whole topic when nobody uses it for {self.topic_after_s} s{why}")
        if self.ledgers:
            entries, size = (sum(getattr(each, name) for each in self.ledgers) for name in ("entries", "size"))
            ids = (
                f"{self.ledgers[0].ledger} to {self.ledgers[-1].ledger}" if self.ledgers[1:] else self.ledgers[0].ledger
            )
            why = "that durable cursors do not hold" if self.has_cursors else "that no durable cursor holds"
            when = f"{self.retention_s} s after they were closed" if self.retention_s > 0 else "soon"
            noun = "ledgers" if self.ledgers[1:] else "ledger"
            parts.append(f"{noun} {ids} ({entries} entries, {size} bytes) {why}, {when}")
        return "; ".join(parts) or "nothing"


def broker_deletions(info: StreamInfo, marks: Sequence[Position], policies: NamespacePolicies) -> BrokerDeletions:
    """Returns what the default broker deletes. ``info`` has the ends of all ledgers; the durable cursors have
    acknowledged everything up to ``marks``."""
    ledgers, topic_after_s = _ledgers(info, marks, policies), _topic_after_s(info, marks, policies)
    with_cursor = [*marks, EARLIEST]
    cursor_keeps = not _ledgers(info, with_cursor, policies) and _topic_after_s(info, with_cursor, policies) is None
    return BrokerDeletions(ledgers, topic_after_s, policies.retention_s, bool(marks), cursor_keeps)


def _ledgers(info: StreamInfo, marks: Sequence[Position], policies: NamespacePolicies) -> tuple[StreamLedger, ...]:
    if policies.keeps_all or not info.ledgers:
        return ()
    holds = not (policies.moves_subscriptions or policies.deletes_subscriptions)
    settings = StreamSettings(
        retention_s=UNLIMITED if policies.retention_s == UNLIMITED else 0, retention_bytes=policies.retention_bytes
    )
    closed = [each._replace(timestamp_ms=each.timestamp_ms or 1) for each in info.ledgers]
    newest = StreamLedger(info.ledgers[-1].ledger + 1, has_counts=False)
    as_opened = replace(info, ledgers=(*closed, newest))
    dropped = frozenset(trimmable(as_opened, marks if holds else (), settings, _FAR_FUTURE_MS))
    return tuple([each for each in info.ledgers if each.ledger in dropped and each.entries])


def _topic_after_s(info: StreamInfo, marks: Sequence[Position], policies: NamespacePolicies) -> int | None:
    if not policies.deletes_inactive or policies.retention_s == UNLIMITED:
        return None
    last = max((Position(each.ledger, each.entries - 1) for each in info.ledgers if each.entries), default=None)
    are_caught_up = policies.deletes_caught_up and all(last is None or mark >= last for mark in marks)
    if marks and not policies.deletes_subscriptions and not are_caught_up:
        return None
    return max(policies.max_inactive_s, policies.retention_s)
