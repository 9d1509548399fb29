"""The tables of one broker and their files: loaded at the start, saved when they change.

Topics and groups are saved at each change, before whoever asked for it has the answer. Offsets change with every
commit and are saved every few seconds, on a thread; a crash costs the commits in between, so their messages come again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tallystick.errors import StorageError
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS, ConfigFiles
from tallystick.rocketmq.broker.delays import Delays
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.offsets import EndOf, Offsets, SavedOffsets
from tallystick.rocketmq.broker.topics import TopicDefaults, Topics
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import DelayTable, GroupTable, TopicTable
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

T = TypeVar("T")


class Tables:
    """``topics``, ``groups``, ``offsets`` and ``delays``. Made, used and changed on the loop."""

    def __init__(
        self,
        files: ConfigFiles,
        defaults: TopicDefaults,
        clock: Clock,
        events: Events,
        topics_changed: Callable[[], None],
        end_of: EndOf,
        *,
        slave: bool = False,
        auto_create_groups: bool = True,
    ) -> None:
        """``topics_changed`` is called after each change: it registers. ``end_of`` tells where the recovered log ends.

        Raises CorruptRecord for a damaged file.
        """
        self._files, self._events, self._topics_changed = files, events, topics_changed
        self._unsaved: dict[str, None] = {}  # topics or groups, where saving failed
        self.topics = Topics(defaults, clock, self._topics_change, files.load(TOPICS, _reader(TopicTable)), slave=slave)
        self.groups = Groups(
            clock,
            self._groups_change,
            files.load(GROUPS, _reader(GroupTable)),
            auto_create=auto_create_groups,
            slave=slave,
        )
        self.offsets = Offsets(clock, end_of, files.load(CONSUMER_OFFSETS, _reader(SavedOffsets)), slave=slave)
        self.delays = Delays(clock, files.load(DELAY_OFFSETS, _reader(DelayTable)))
        self._cut_offsets()

    def unsaved(self) -> dict[str, bytes | str]:
        """By file name the text of what is to be saved: every few seconds, and once more at the end. Counts as saved.

        Whoever takes them gives them to ``ConfigFiles.save`` on a thread, and the names of those that fail back to
        ``failed``. Topics and groups that could not be saved are tried again here: saved from two threads, an older
        table could end in the place of a newer one.
        """
        for name in tuple(self._unsaved):
            self._save(name)
        texts: dict[str, bytes | str] = {}
        if self.offsets.dirty:
            texts[CONSUMER_OFFSETS] = dialect.write_pretty(self.offsets.to_save())
            self.offsets.dirty = False
        if self.delays.dirty:
            texts[DELAY_OFFSETS] = self.delays.text
            self.delays.dirty = False
        return texts

    def _cut_offsets(self) -> None:
        """Saved before the log grows again: else a second crash would bring an offset back, among new messages."""
        for commit in self.offsets.cut():
            self._events.emit(
                "consumer offset cut", topic=commit.topic, group=commit.group, queue=commit.queue_id,
                offset=commit.offset, reason="the log lost the messages that it had consumed",
            )  # fmt: skip
        for name, text in self.unsaved().items():
            try:
                self._files.save(name, text)
            except StorageError as error:
                self._events.emit("table not saved", file=name, reason=str(error))
                self.failed(name)

    def failed(self, name: str) -> None:
        (self.offsets if name == CONSUMER_OFFSETS else self.delays).dirty = True

    def _topics_change(self) -> None:
        self._save(TOPICS)
        self._topics_changed()

    def _groups_change(self) -> None:
        self._save(GROUPS)

    def _save(self, name: str) -> None:
        try:
            self._files.save(name, self._text(name))
            self._unsaved.pop(name, None)
        except StorageError as error:
            # The table stands all the same: what it allows goes on, and the next round of saving tries again.
            if name not in self._unsaved:
                self._events.emit("table not saved", file=name, reason=str(error))
            self._unsaved[name] = None

    def _text(self, name: str) -> str:
        return dialect.write_pretty(self.topics.table() if name == TOPICS else self.groups.table())


def _reader(kind: type[T]) -> Callable[[bytes], T]:
    return lambda text: dialect.read_as(text, kind)
