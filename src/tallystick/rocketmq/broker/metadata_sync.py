"""A slave copies its master's tables: topics, consumer offsets, delay offsets, groups (H12; ``SlaveSynchronize``).

When: see ``Rounds`` (the original's slaves: 60 s after the start, then every 10 s). Each part fails alone and is tried
again in the next round. Topics and groups are taken only when their versions differ, page by page where the master
pages, and then in one step: nobody ever sees half a table.

What consumers committed here while the master was away it is told as any client would tell it, where it lacks them or
has lower numbers: so a master that comes back does not set them back (H3, H13; the original's does).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tallystick.errors import BrokerError, RemoteProtocolError, RequestTimeout, TallyError
from tallystick.rocketmq.broker.offsets import Commit
from tallystick.rocketmq.broker.rounds import FIRST_S, PERIOD_S, Rounds
from tallystick.rocketmq.broker.tables import Tables
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import DelayTable, GroupTable, OffsetTable, TopicTable, TopicTableAnswer
from tallystick.rocketmq.wire.headers import GroupPageHeader, Header, PullHeader, TopicPageHeader, UpdateOffsetHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import DataVersion, PullFlag, RequestCode, ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

ANSWER_S = 3.0
PAGES_S = 60.0  # for all pages of one table
PAGE_ENTRIES = 2000
TOTALS = {
    RequestCode.GET_ALL_TOPIC_CONFIG: "totalTopicNum",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "totalGroupNum",
}

# What to do with a commit of our own: the master has it, or will never take it.
_SETTLED = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

Page = TypeVar("Page", TopicTableAnswer, GroupTable)


@dataclass
class SyncStatus:
    """How far the copy is: for ``tally ha status``."""

    synced_ms: int = 0  # when a whole round last succeeded; 0: never
    failures: dict[str, str] = field(default_factory=dict)  # of the last round, by part


class MetadataSync:
    """Runs from ``start`` to ``close``. ``master`` may be set at any time; None: nobody to copy from."""

    def __init__(
        self,
        client: RemotingClient,
        clock: Clock,
        events: Events,
        tables: Tables,
        *,
        first_s: float = FIRST_S,
        period_s: float = PERIOD_S,
    ) -> None:
        self._client, self._clock, self._events, self._tables = client, clock, events, tables
        self._rounds = Rounds(clock.now(), first_s=first_s, period_s=period_s)
        self._sooner = asyncio.Event()  # the next round may be due earlier than it was
        self._task: asyncio.Task[None] | None = None
        self.status = SyncStatus()

    @property
    def master(self) -> str | None:
        return self._rounds.master

    @master.setter
    def master(self, address: str | None) -> None:
        self._rounds.master_found(address, self._clock.now())
        self._sooner.set()

    def followed(self) -> None:
        """The master is back: a round comes at once."""
        self._rounds.followed(self._clock.now())
        self._sooner.set()

    def arrived(self, topics: Iterable[str]) -> None:
        """There are records of these topics: a round comes at once if the table lacks one."""
        if self._rounds.dispatched(topics, self._tables.topics.all, self._clock.now()):
            self._sooner.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            master = await self._due()
            self._rounds.began(self._clock.now())
            await self.sync(master)
            self._rounds.ended(self._tables.topics.all, self._clock.now(), failed=bool(self.status.failures))

    async def _due(self) -> str:
        """Wait for the next round; of which master."""
        while True:
            self._sooner.clear()
            now, due, master = self._clock.now(), self._rounds.wake_at(), self._rounds.master
            if master is not None and due is not None and due <= now:
                return master
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._sooner.wait(), None if due is None else due - now)

    async def sync(self, master: str) -> None:
        """One round."""
        parts: tuple[tuple[str, Callable[[str], Awaitable[None]]], ...] = (
            ("topics", self._sync_topics),
            ("consumer offsets", self._sync_offsets),
            ("delay offsets", self._sync_delays),
            ("groups", self._sync_groups),
        )
        before, failures = self.status.failures, dict[str, str]()
        for part, copy in parts:
            try:
                await copy(master)
            except TallyError as error:
                failures[part] = str(error)
                if part not in before:
                    self._events.emit("metadata not copied", part=part, master=master, reason=str(error))
        self.status.failures = failures
        if not failures:
            self.status.synced_ms = self._clock.wall_ms()

    # The parts

    async def _sync_topics(self, master: str) -> None:
        def wanted(start: int, version: str) -> TopicPageHeader:
            return TopicPageHeader(topic_seq=start, data_version=version, max_topic_num=PAGE_ENTRIES)

        topics, code = self._tables.topics, RequestCode.GET_ALL_TOPIC_CONFIG
        table = await self._pages(master, code, TopicTableAnswer, wanted, lambda page: page.topics, topics.version)
        if table is not None:
            topics.replace(TopicTable(table.version, table.topics))

    async def _sync_groups(self, master: str) -> None:
        def wanted(start: int, version: str) -> GroupPageHeader:
            return GroupPageHeader(group_seq=start, data_version=version, max_group_num=PAGE_ENTRIES)

        groups, code = self._tables.groups, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        table = await self._pages(master, code, GroupTable, wanted, lambda page: page.groups, groups.version)
        if table is not None:
            groups.replace(table)

    async def _sync_offsets(self, master: str) -> None:
        offsets, table = self._tables.offsets, await self._offsets_of(master)
        lacking = offsets.lacking(table)
        for commit in lacking:
            await self._tell(master, commit)
        offsets.replace(await self._offsets_of(master) if lacking else table)

    async def _offsets_of(self, master: str) -> OffsetTable:
        answer = await self._ask(master, request(RequestCode.GET_ALL_CONSUMER_OFFSET))
        return dialect.read_as(bytes(answer.body), OffsetTable)

    async def _tell(self, master: str, commit: Commit) -> None:
        """A group that began here is unknown there: as any consumer's, its first pull makes it, if the master likes."""
        header = UpdateOffsetHeader(
            consumer_group=commit.group, topic=commit.topic, queue_id=commit.queue_id, commit_offset=commit.offset
        )
        answer = await self._client.ask(
            master, request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields()), ANSWER_S
        )
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            await self._client.ask(master, request(RequestCode.PULL_MESSAGE, _pull_at(commit).to_fields()), ANSWER_S)
            again = request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields())
            answer = await self._client.ask(master, again, ANSWER_S)
        # With any other code it stands in nobody's way: the others are told, and this one in the next round.
        if answer.code in _SETTLED:
            self._tables.offsets.disown(commit)

    async def _sync_delays(self, master: str) -> None:
        answer = await self._ask(master, request(RequestCode.GET_ALL_DELAY_OFFSET))
        text = bytes(answer.body)
        self._tables.delays.take(text, dialect.read_as(text, DelayTable))

    async def _pages(
        self,
        master: str,
        code: RequestCode,
        kind: type[Page],
        wanted: Callable[[int, str], Header],
        entries: Callable[[Page], dict[str, Any]],
        known: DataVersion,
    ) -> Page | None:
        """The whole table; None: its version is ``known``. When it changes between two pages, from the start again."""
        ends_at = self._clock.now() + PAGES_S
        whole: Page | None = None
        while self._clock.now() < ends_at:
            start = len(entries(whole)) if whole is not None else 0
            version = dialect.write(whole.version).decode() if whole is not None else ""
            answer = await self._ask(master, request(code, wanted(start, version).to_fields()))
            page = dialect.read_as(bytes(answer.body), kind)
            if page.version == known:
                return None
            if whole is None:
                whole = page
            elif page.version != whole.version:
                whole = None
                continue
            else:
                entries(whole).update(entries(page))
            total = answer.fields.get(TOTALS[code])  # none: an old master, which sends all at once
            if total is None or not total.isdecimal() or len(entries(whole)) >= int(total):
                return whole
            if not entries(page):
                raise RemoteProtocolError("the master's table ends early", request=code.name, total=total)
        raise RequestTimeout("the master's table kept changing", request=code.name)

    async def _ask(self, master: str, command: Command) -> Command:
        answer = await self._client.ask(master, command, ANSWER_S)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.remark or "refused", response_code=answer.code, request=command.code)
        return answer


def _pull_at(commit: Commit) -> PullHeader:
    return PullHeader(
        consumer_group=commit.group, topic=commit.topic, queue_id=commit.queue_id, queue_offset=commit.offset,
        max_msg_nums=1, sys_flag=PullFlag.SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0, subscription="*",
        sub_version=0,
    )  # fmt: skip
