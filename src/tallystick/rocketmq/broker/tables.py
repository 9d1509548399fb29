"""The tables of one broker and their files: loaded at the start, saved when they change.

*Urgent* are topics, groups, the first offset of a group in a queue, and offsets that went back or were set on purpose:
whoever asked for a change gets the response when it is saved. Else offsets change with every commit and are saved every
few seconds; a crash costs the commits in between, so their messages come again.

A table becomes a text a few lines at a time (``text``), so that the loop has turns in between: ``saver`` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from tallystick.rocketmq.broker.config_files import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    GROUPS,
    RESETS,
    TOPICS,
    ConfigFiles,
)
from tallystick.rocketmq.broker.delays import Delays
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.offsets import EndOf, Offsets, SavedOffsets
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.topics import Topics
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import DelayTable, GroupTable, TopicTable
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

URGENT = (TOPICS, GROUPS, RESETS)  # whenever they change; the offsets only when a crash would pass over messages

T = TypeVar("T")


class BrokerTables:
    """``topics``, ``groups``, ``offsets`` and ``delays``. Made, used and changed on the loop."""

    def __init__(
        self,
        files: ConfigFiles,
        *,
        settings: BrokerSettings,
        standing: Standing,
        clock: Clock,
        events: Events,
        topics_changed: Callable[[], None],
        end_of: EndOf,
    ) -> None:
        """``topics_changed`` is called after each change of topics; ``end_of`` returns where a queue ends. Raises
        CorruptRecord for a damaged file."""
        self._files, self._clock, self._events, self._topics_changed = files, clock, events, topics_changed
        self.changes = 0  # of urgent tables
        self.changed: Callable[[], None] = lambda: None  # called at each of them, for who saves
        self._awaited_files: dict[str, None] = {}  # that somebody waits for
        self._was_awaited: dict[str, bool] = {}  # whether somebody waited for a file when its text was taken last
        self.topics = Topics(
            settings.topic_defaults(),
            clock,
            self._topics_change,
            files.load(TOPICS, _reader(TopicTable)),
            most=settings.max_topics,
            standing=standing,
        )
        self.groups = Groups(
            clock,
            lambda: self._change(GROUPS),
            files.load(GROUPS, _reader(GroupTable)),
            auto_create=settings.auto_create_groups,
            most=settings.max_groups,
            standing=standing,
        )
        self.offsets = Offsets(
            clock,
            end_of,
            files.load(CONSUMER_OFFSETS, _reader(SavedOffsets)),
            files.load(RESETS, _reader(ResetTable)),
            most=settings.max_offsets,
            standing=standing,
            save_now=self._save_offsets_now,
        )
        self.delays = Delays(clock, files.load(DELAY_OFFSETS, _reader(DelayTable)))

    def cut_offsets(self, *, slave: bool) -> None:
        """Cut the offsets for the broker's role when the end of its log is settled. Save them before the log grows:
        else a second crash would bring an offset back, among new messages."""
        for commit in self.offsets.cut(slave=slave):
            self._events.emit(
                "consumer offset cut",
                topic=commit.topic,
                group=commit.group,
                queue=commit.queue_id,
                offset=commit.offset,
                reason="the log lost the messages that it had consumed",
            )

    def unsaved_files(self, *, urgent: bool = False) -> list[str]:
        """The files whose tables changed, in the order of saving; with ``urgent`` only those that somebody waits for.

        Counters of resets go before the offsets: a crash in between costs a commit made at a slave, never a reset.
        """
        names = [name for name in URGENT if name in self._awaited_files]
        if not urgent and self.offsets.resets.dirty and RESETS not in names:
            names.append(RESETS)
        if CONSUMER_OFFSETS in self._awaited_files or (self.offsets.dirty and not urgent):
            names.append(CONSUMER_OFFSETS)
        if self.delays.dirty and not urgent:
            names.append(DELAY_OFFSETS)
        return names

    def text(self, name: str) -> Iterator[bytes]:
        """The text of one file, piece by piece. The table counts as saved from now on: see ``failed``.

        Urgent tables are those of this moment; offsets are those of the moment when each piece is taken.
        """
        self._was_awaited[name] = name in self._awaited_files
        self._awaited_files.pop(name, None)
        if name in (TOPICS, GROUPS):
            return dialect.write_lines(self.topics.to_save() if name == TOPICS else self.groups.to_save())
        if name == RESETS:
            self.offsets.resets.dirty = False
            return dialect.write_lines(self.offsets.resets.table())
        if name == CONSUMER_OFFSETS:
            self.offsets.dirty = False
            return dialect.write_lines(self.offsets.to_save())
        self.delays.dirty = False
        return iter([self.delays.text])

    def saved(self, name: str) -> None:
        """The text that was taken last is on the disk."""
        if name in (TOPICS, GROUPS):
            (self.topics if name == TOPICS else self.groups).saved()

    def failed(self, name: str) -> None:
        """The text could not be saved: it must be tried again, and responses go on waiting for it."""
        if name in URGENT or self._was_awaited.get(name):
            self._awaited_files[name] = None
        if name not in URGENT:
            (self.offsets if name == CONSUMER_OFFSETS else self.delays).dirty = True

    def is_urgent(self, name: str) -> bool:
        """Whether a response waits for the file."""
        return name in self._awaited_files

    def _topics_change(self) -> None:
        self._change(TOPICS)
        self._topics_changed()

    def _save_offsets_now(self) -> None:
        self._change(*((RESETS,) if self.offsets.resets.dirty else ()), CONSUMER_OFFSETS)

    def _change(self, *names: str) -> None:
        self._awaited_files.update(dict.fromkeys(names))
        self.changes += 1
        self.changed()


def _reader(kind: type[T]) -> Callable[[bytes], T]:
    """Returns the reader of one of our own files, of any size: what makes tables grow is bounded where it is made."""
    return lambda text: dialect.read_as(text, kind, bounded=False)
