"""Topics that nobody uses while a broker with its default settings runs: which of them it deletes, and what of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import tallystick
from support.pulsar_topics import DEFAULT, KEPT, Message, PulsarTopics, append, messages
from tallystick.bookkeeper.stream.settings import StreamSettings

HELD, UNHELD, FORCED = f"{DEFAULT}/held", f"{KEPT}/unheld", f"{DEFAULT}/forced"
DELETED = f"{DEFAULT}/deleted"
SHORT = StreamSettings(max_entries_per_ledger=40)
LONG_MESSAGES = 110  # of a megabyte: more than a bookie keeps in memory


@dataclass
class UnusedTopics:
    """What was in them, and since when nobody used them.

    Ours hands over ``HELD`` with a durable cursor, ``UNHELD`` in a namespace that keeps all, and ``FORCED`` with
    neither. ``DELETED`` is the broker's own, and it is deleted there.
    """

    appended: dict[str, list[Message]] = field(default_factory=dict)
    loaded_at: float = 0.0
    deleted_ledgers: list[int] = field(default_factory=list)
    deleted_bytes: int = 0  # of each bookie, before

    @property
    def unused_s(self) -> float:
        return time.monotonic() - self.loaded_at

    @classmethod
    async def start(cls, topics: PulsarTopics) -> UnusedTopics:
        made = cls()
        async with tallystick.connect(topics.uri) as bk:
            for stream in (HELD, UNHELD, FORCED):
                await bk.create_for_pulsar(stream)
                async with bk.open_stream(stream, settings=SHORT) as handle:
                    made.appended[stream] = await append(handle, messages(100))
            async with bk.cursor(HELD, "billing"):
                pass
            for stream in (HELD, UNHELD):
                assert not await bk.hand_over(stream)
            forced = await bk.hand_over(FORCED, force=True)
            assert forced.topic_after_s == 60 and sum(each.entries for each in forced.ledgers) == 100
        for stream in made.appended:
            assert await topics.consume(stream, 100) == made.appended[stream]
        made.loaded_at = time.monotonic()
        await topics.produce(DELETED, messages(LONG_MESSAGES, size=1_000_000))
        async with tallystick.connect(topics.uri) as bk:
            listed = (await bk.stream_context.catalog.read(DELETED, synced=True)).value.ledgers
        made.deleted_ledgers, made.deleted_bytes = [each.ledger for each in listed], topics.stored_bytes()
        await topics.delete(DELETED)
        return made
