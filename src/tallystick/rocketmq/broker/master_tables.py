"""What a slave asks its master for: tables whole or in pages, where its log ends; and what it tells it (H12).

Tables are not parsed as a stranger's text: a frame bounds each page, which is read in steps (``table_parts``), and all
pages of a table have a bound. A name server may have told a slave of a master that is none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from tallystick.errors import BrokerError, RemoteProtocolError, RequestTimeout
from tallystick.rocketmq.broker.offset_pages import OFFSETS, OffsetPagePart
from tallystick.rocketmq.broker.offsets import OffsetCommit
from tallystick.rocketmq.broker.queue_pages import QUEUE_ENDS, QueueEndsPage
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.broker.table_parts import ConfigsRead, OffsetsRead, check_count
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.slices import in_slices
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import (
    DelayTable,
    GroupTable,
    GroupTablePart,
    KvTable,
    OffsetTable,
    OffsetTablePart,
    TopicStats,
    TopicTable,
    TopicTablePart,
    read_stats,
)
from tallystick.rocketmq.wire.headers import Header
from tallystick.rocketmq.wire.numbers import number_of
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import DataVersion, PullFlag, RequestCode, ResponseCode
from tallystick.runtime.clock import Clock

ANSWER_S = 3.0
PAGES_S = 60.0  # for all pages of one table
PAGE_ENTRIES = 2000
MAX_NAMES = 1_000_000  # topics, or groups
MAX_ENDS = 4_000_000  # queues and deletions
MAX_PAGE_VALUES = 100_000  # of a page of ends, which is read at once: ten milliseconds
INSTANCE = "tallyInstance"  # the field that names the process whose log was proven; an original passes over it
TOTALS = {
    RequestCode.GET_ALL_TOPIC_CONFIG: "totalTopicNum",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "totalGroupNum",
}

Body = bytes | bytearray | memoryview


@dataclass(frozen=True)
class QueueEnds:
    """By queue the next queue offset, counting all records before ``at``; by deleted topic where that was. ``first``:
    where the log begins, None if nobody said it."""

    at: int
    ends: dict[tuple[str, int], int]
    deleted: dict[str, int]
    first: int | None = None


class MasterTables:
    """Of the master at one address. ``instance`` is what its hello said: a master of ours that is another process by
    now refuses all of this. Every method raises TallyError."""

    def __init__(self, client: RemotingClient, clock: Clock, address: str, instance: str) -> None:
        self._client, self._clock, self._address, self._instance = client, clock, address, instance

    async def topics(self, known: DataVersion) -> TopicTable | None:
        """Returns None if the version is ``known``."""

        def wanted(start: int, version: str) -> Header:
            return headers.TopicPageHeader(topic_seq=start, data_version=version, max_topic_num=PAGE_ENTRIES)

        found = await self._table(RequestCode.GET_ALL_TOPIC_CONFIG, TopicTablePart, wanted, known)
        return TopicTable(found.version, found.topics) if found is not None else None

    async def groups(self, known: DataVersion) -> GroupTable | None:
        """Returns None if the version is ``known``."""

        def wanted(start: int, version: str) -> Header:
            return headers.GroupPageHeader(group_seq=start, data_version=version, max_group_num=PAGE_ENTRIES)

        found = await self._table(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupTablePart, wanted, known)
        return GroupTable(found.version, found.groups, found.forbidden) if found is not None else None

    async def offsets(self, most: int) -> tuple[OffsetTable, ResetTable | None]:
        """All of them, and their counters of resets; an original has none. There may be ``most``, committed, pulled and
        counted ones and keys without any together."""
        found = OffsetsRead(most)
        try:
            async for is_first, body in self.pages(OFFSETS):
                if is_first:
                    found = OffsetsRead(most)
                await in_slices(found.reading(body, OffsetPagePart), self._clock)
            return self._complete(found), found.resets
        except BrokerError as error:
            if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        answer = await self._good(request(RequestCode.GET_ALL_CONSUMER_OFFSET))
        found = OffsetsRead(most)
        await in_slices(found.reading(answer.body, OffsetTablePart), self._clock)
        return self._complete(found), None

    def _complete(self, found: OffsetsRead) -> OffsetTable:
        if found.version is None or found.offsets is None:
            raise RemoteProtocolError("the master's table of consumer offsets has none", address=self._address)
        return OffsetTable(found.version, found.offsets, found.pull_offsets)

    async def delays(self) -> tuple[bytes, DelayTable]:
        """As the master wrote it, and what that says."""
        text = bytes((await self._good(request(RequestCode.GET_ALL_DELAY_OFFSET))).body)
        return text, dialect.read_as(text, DelayTable)

    async def queue_ends(self, topics: Iterable[str]) -> QueueEnds:
        """Of all queues; an original is asked for the queues of each of the ``topics``, and tells of no deletion.

        A queue that goes meanwhile may have an end: at worst a topic that is made anew begins behind it.
        """
        told = QueueEnds(-1, {}, {})
        try:
            async for is_first, body in self.pages(QUEUE_ENDS):
                dialect.check_bounds(bytes(body), MAX_PAGE_VALUES)
                page = dialect.read_as(bytes(body), QueueEndsPage, max_values=dialect.MAX_LOOSE_SHORT)
                if is_first:
                    told = QueueEnds(page.at, {}, {}, page.first)
                check_count(len(told.ends) + len(told.deleted), MAX_ENDS, "ends of queues: one may have")
                told.deleted.update(page.deleted)
                told.ends.update({(topic, queue_id): end for topic, queue_id, end in page.ends})
            return told
        except BrokerError as error:
            if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        told = QueueEnds(await self._dispatched(), {}, {}, await self._number("commitLogMinOffset"))
        for topic in topics:
            header = headers.TopicHeader(topic=topic)
            answer = await self._ask(request(RequestCode.GET_TOPIC_STATS_INFO, header.to_fields()))
            if answer.code == ResponseCode.SUCCESS:
                stats = read_stats(bytes(answer.body), TopicStats)
                assert isinstance(stats, TopicStats)
                told.ends.update({(key.topic, key.queue_id): value.max_offset for key, value in stats.queues.items()})
        return told

    async def log_end(self) -> int:
        """The offset at which the master's log ends, as it tells anybody."""
        return await self._number("commitLogMaxOffset")

    async def _dispatched(self) -> int:
        """Records before this physical offset were in the master's queues when it was asked."""
        return max(0, await self._number("commitLogMaxOffset") - await self._number("dispatchBehindBytes"))

    async def _number(self, name: str) -> int:
        answer = await self._good(request(RequestCode.GET_BROKER_RUNTIME_INFO))
        number = number_of(dialect.read_as(bytes(answer.body), KvTable).table.get(name, ""))
        if number is None:
            raise RemoteProtocolError(f"the master does not say its {name}", address=self._address)
        return number

    async def tell(self, commit: OffsetCommit) -> Command:
        """A commit that was made at this slave; the answer.

        If the master has no such group, it is that to the pull which was to make it.
        """
        header = headers.UpdateOffsetHeader(
            consumer_group=commit.group,
            topic=commit.topic,
            queue_id=commit.queue_id,
            commit_offset=commit.offset,
            resets=commit.resets,
        )
        answer = await self._ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields()))
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            # A group that began here: as any consumer's, its first pull makes it, if the master likes.
            pulled = await self._ask(request(RequestCode.PULL_MESSAGE, pull_at(commit).to_fields()))
            answer = await self._ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields()))
            if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                return pulled  # a broker that forbids reads for a while may make the group later
        return answer

    async def pages(self, table: str) -> AsyncIterator[tuple[bool, Body]]:
        """The bodies of a table's pages in order; with each, whether it begins the table (again).

        Raises BrokerError with code 3 if the master has no pages of it.
        """
        ends_at = self._clock.now() + PAGES_S
        start: int | None = 0
        snapshot: str | None = None
        while start is not None:
            if self._clock.now() >= ends_at:
                raise RequestTimeout("the master's table kept changing", table=table)
            header = headers.TablePageHeader(table=table, start=start, snapshot=snapshot)
            answer = await self._good(request(RequestCode.GET_TABLE_PAGE, header.to_fields()))
            told = headers.TablePageResponse.of(answer)
            is_first, snapshot = told.snapshot != snapshot, told.snapshot
            if told.next is not None and told.next <= (0 if is_first else start):
                raise RemoteProtocolError("the pages of the master's table go back", table=table, next=told.next)
            yield is_first, answer.body
            start = told.next

    async def _table(
        self, code: RequestCode, kind: type[TopicTablePart] | type[GroupTablePart],
        wanted: Callable[[int, str], Header], known: DataVersion,
    ) -> ConfigsRead | None:  # fmt: skip
        """The whole table; None: its version is ``known``. When it changes between two pages, from the start again."""
        ends_at = self._clock.now() + PAGES_S
        whole, count = ConfigsRead(), 0
        while self._clock.now() < ends_at:
            version = dialect.write(whole.version).decode() if count else ""
            answer = await self._good(request(code, wanted(count, version).to_fields()))
            page = ConfigsRead()
            await in_slices(page.reading(answer.body, kind), self._clock)
            if page.version == known:
                return None
            if not count:
                whole = page
            elif page.version != whole.version:
                count = 0
                continue
            else:
                for table, more in zip(whole.tables, page.tables, strict=True):
                    table.update(more)
            before, count = count, len(whole.topics) + len(whole.groups)
            check_count(count, MAX_NAMES, f"entries of {code.name}: one may have")
            total = number_of(answer.fields.get(TOTALS[code], ""))  # none: an old master, which sends all at once
            if total is None or count >= total:
                return whole
            if count == before:
                raise RemoteProtocolError("the master's table ends early", request=code.name, total=total)
        raise RequestTimeout("the master's table kept changing", request=code.name)

    async def _good(self, command: Command) -> Command:
        answer = await self._ask(command)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.remark or "refused", response_code=answer.code, request=command.code)
        return answer

    async def _ask(self, command: Command) -> Command:
        if self._instance:
            command.ext = {**command.fields, INSTANCE: self._instance}
        return await self._client.ask(self._address, command, ANSWER_S)


def pull_at(commit: OffsetCommit) -> headers.PullHeader:
    return headers.PullHeader(
        consumer_group=commit.group, topic=commit.topic, queue_id=commit.queue_id, queue_offset=commit.offset,
        max_msg_nums=1, sys_flag=PullFlag.SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0, subscription="*",
        sub_version=0,
    )  # fmt: skip
