"""A slave's requests to its master: for whole tables or pages of them, for the end of its log, and with commits (H12).

Tables are not parsed as a stranger's text: a frame bounds each page, which is read in steps (``table_parts``), and all
pages of a table have a bound together, as a name server may have named a master that is none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import msgspec

from tallystick.errors import BrokerError, RemoteProtocolError, RequestTimeout, UsageError
from tallystick.rocketmq.broker.access.gate import ACCESS
from tallystick.rocketmq.broker.access.pages import read_page
from tallystick.rocketmq.broker.access.table import MAX_USERS, User, read_users
from tallystick.rocketmq.broker.offset_pages import OFFSETS, OffsetPagePart
from tallystick.rocketmq.broker.offsets import OffsetCommit
from tallystick.rocketmq.broker.queue_pages import QUEUE_ENDS, QueueEndsPage
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.broker.sink_requests import SINKS
from tallystick.rocketmq.broker.table_parts import ConfigsRead, OffsetsRead, check_count
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.slices import in_slices
from tallystick.rocketmq.store.sink_table import MOST_ROWS, SinkBatch
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

RESPONSE_S = 3.0
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
_decode_sinks = msgspec.json.Decoder(list[SinkBatch]).decode


@dataclass(frozen=True)
class QueueEnds:
    """By queue the next queue offset, counting all records before ``at``; by deleted topic where that was. ``first``:
    where the log begins, None if the master does not say it."""

    at: int
    ends: dict[tuple[str, int], int]
    deleted: dict[str, int]
    first: int | None = None


class MasterTables:
    """The tables of the master at one address. ``instance`` is that of its hello: a master of ours that was restarted
    since refuses all requests. Every method raises TallyError."""

    def __init__(self, client: RemotingClient, clock: Clock, address: str, instance: str) -> None:
        self._client, self._clock, self._address, self._instance = client, clock, address, instance

    async def topics(self, known_version: DataVersion) -> TopicTable | None:
        """Returns None if the master's version is ``known_version``."""

        def page_header(start: int, version: str) -> Header:
            return headers.TopicPageHeader(topic_seq=start, data_version=version, max_topic_num=PAGE_ENTRIES)

        table = await self._table(RequestCode.GET_ALL_TOPIC_CONFIG, TopicTablePart, page_header, known_version)
        return TopicTable(table.version, table.topics) if table is not None else None

    async def groups(self, known_version: DataVersion) -> GroupTable | None:
        """Returns None if the master's version is ``known_version``."""

        def page_header(start: int, version: str) -> Header:
            return headers.GroupPageHeader(group_seq=start, data_version=version, max_group_num=PAGE_ENTRIES)

        table = await self._table(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupTablePart, page_header, known_version
        )
        return GroupTable(table.version, table.groups, table.forbidden) if table is not None else None

    async def offsets(self, most: int) -> tuple[OffsetTable, ResetTable | None]:
        """Returns all offsets and their counters of resets, None for an original, which has none. At most ``most``:
        committed and pull offsets, counters, and keys without any together."""
        table = OffsetsRead(most)
        try:
            async for is_first, body in self.pages(OFFSETS):
                if is_first:
                    table = OffsetsRead(most)
                await in_slices(table.reading(body, OffsetPagePart), self._clock)
            return self._complete(table), table.resets
        except BrokerError as error:
            if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        response = await self._request(request(RequestCode.GET_ALL_CONSUMER_OFFSET))
        table = OffsetsRead(most)
        await in_slices(table.reading(response.body, OffsetTablePart), self._clock)
        return self._complete(table), None

    def _complete(self, table: OffsetsRead) -> OffsetTable:
        if table.version is None or table.offsets is None:
            raise RemoteProtocolError("the master's table of consumer offsets has none", address=self._address)
        return OffsetTable(table.version, table.offsets, table.pull_offsets)

    async def delays(self) -> tuple[bytes, DelayTable]:
        """Returns the delay offsets: the text as the master wrote it, and the table."""
        text = bytes((await self._request(request(RequestCode.GET_ALL_DELAY_OFFSET))).body)
        return text, dialect.read_as(text, DelayTable)

    async def queue_ends(self, topics: Iterable[str]) -> QueueEnds:
        """Returns the ends of all queues. An original is asked for those of each of ``topics``, and names no deletion.

        A queue that goes meanwhile may have an end: at worst a topic that is made anew begins behind it.
        """
        queue_ends = QueueEnds(-1, {}, {})
        try:
            async for is_first, body in self.pages(QUEUE_ENDS):
                dialect.check_bounds(bytes(body), MAX_PAGE_VALUES)
                page = dialect.read_as(bytes(body), QueueEndsPage, max_values=dialect.MAX_LOOSE_SHORT)
                if is_first:
                    queue_ends = QueueEnds(page.at, {}, {}, page.first)
                check_count(len(queue_ends.ends) + len(queue_ends.deleted), MAX_ENDS, "ends of queues: one may have")
                queue_ends.deleted.update(page.deleted)
                queue_ends.ends.update({(topic, queue_id): end for topic, queue_id, end in page.ends})
            return queue_ends
        except BrokerError as error:
            if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        queue_ends = QueueEnds(await self._dispatched(), {}, {}, await self._number("commitLogMinOffset"))
        for topic in topics:
            header = headers.TopicHeader(topic=topic)
            response = await self._send_request(request(RequestCode.GET_TOPIC_STATS_INFO, header.to_fields()))
            if response.code == ResponseCode.SUCCESS:
                stats = read_stats(bytes(response.body), TopicStats)
                queue_ends.ends.update(
                    {(key.topic, key.queue_id): value.max_offset for key, value in stats.queues.items()}
                )
        return queue_ends

    async def sinks(self, most: int) -> list[SinkBatch]:
        """Returns how far all sinks have come, at most ``most`` partitions; nothing of an original, which knows no
        sinks."""
        rows = list[SinkBatch]()
        try:
            async for is_first, body in self.pages(SINKS):
                rows = [] if is_first else rows
                try:
                    rows += _decode_sinks(body)
                except msgspec.DecodeError as error:
                    raise RemoteProtocolError(f"the master's table of sinks is none: {error}") from error
                # A row costs something without any.
                check_count(len(rows), MOST_ROWS * most, "sinks with those forgotten: one may have")
                count = sum(len(row.partitions) for row in rows)
                check_count(count, most, "sinks: maxSinkPartitions here allows")
        except BrokerError as error:
            if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        return rows

    async def users(self) -> dict[str, User] | None:
        """Returns all users; None of a master that asks nobody for a key, or is an original: it has no such table."""
        users: dict[str, User] = {}
        try:
            async for is_first, body in self.pages(ACCESS):
                users = {} if is_first else users
                try:
                    users.update(read_users(read_page(body)))
                except (msgspec.DecodeError, UsageError) as error:
                    raise RemoteProtocolError(f"the master's table of users is none: {error}") from error
                check_count(len(users), MAX_USERS, "users: one may have")
        except BrokerError as error:
            if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None
        return users

    async def log_end(self) -> int:
        """Returns the offset at which the master's log ends."""
        return await self._number("commitLogMaxOffset")

    async def _dispatched(self) -> int:
        """Records before this physical offset were in the master's queues when it was asked."""
        return max(0, await self._number("commitLogMaxOffset") - await self._number("dispatchBehindBytes"))

    async def _number(self, name: str) -> int:
        response = await self._request(request(RequestCode.GET_BROKER_RUNTIME_INFO))
        number = number_of(dialect.read_as(bytes(response.body), KvTable).table.get(name, ""))
        if number is None:
            raise RemoteProtocolError(f"the master does not say its {name}", address=self._address)
        return number

    async def send_commit(self, commit: OffsetCommit) -> Command:
        """Send a commit that was made at this slave. Returns the response; if the master has no such group, the
        response to the pull that was to make it."""
        header = headers.UpdateOffsetHeader(
            consumer_group=commit.group,
            topic=commit.topic,
            queue_id=commit.queue_id,
            commit_offset=commit.offset,
            resets=commit.resets,
        )
        response = await self._send_request(request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields()))
        if response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            # A group that began here: as any consumer's, its first pull makes it, if the master likes.
            pull_response = await self._send_request(request(RequestCode.PULL_MESSAGE, pull_at(commit).to_fields()))
            response = await self._send_request(request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields()))
            if response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                return pull_response  # a broker that forbids reads for a while may make the group later
        return response

    async def pages(self, table: str) -> AsyncIterator[tuple[bool, Body]]:
        """Returns the bodies of a table's pages in order; with each, whether it begins the table (again).

        Raises BrokerError with code 3 if the master has no pages of it.
        """
        ends_at = self._clock.now() + PAGES_S
        start: int | None = 0
        snapshot: str | None = None
        while start is not None:
            if self._clock.now() >= ends_at:
                raise RequestTimeout("the master's table kept changing", table=table)
            header = headers.TablePageHeader(table=table, start=start, snapshot=snapshot)
            response = await self._request(request(RequestCode.GET_TABLE_PAGE, header.to_fields()))
            page_header = headers.TablePageResponse.of(response)
            is_first, snapshot = page_header.snapshot != snapshot, page_header.snapshot
            if page_header.next is not None and page_header.next <= (0 if is_first else start):
                raise RemoteProtocolError("the pages of the master's table go back", table=table, next=page_header.next)
            yield is_first, response.body
            start = page_header.next

    async def _table(
        self,
        code: RequestCode,
        kind: type[TopicTablePart] | type[GroupTablePart],
        page_header: Callable[[int, str], Header],
        known_version: DataVersion,
    ) -> ConfigsRead | None:
        """Returns the whole table, or None if its version is ``known_version``. When it changes between two pages, it
        is read from the start again."""
        ends_at = self._clock.now() + PAGES_S
        whole, count = ConfigsRead(), 0
        while self._clock.now() < ends_at:
            version = dialect.write(whole.version).decode() if count else ""
            response = await self._request(request(code, page_header(count, version).to_fields()))
            page = ConfigsRead()
            await in_slices(page.reading(response.body, kind), self._clock)
            if page.version == known_version:
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
            total = number_of(response.fields.get(TOTALS[code], ""))  # none: an old master, which sends all at once
            if total is None or count >= total:
                return whole
            if count == before:
                raise RemoteProtocolError("the master's table ends early", request=code.name, total=total)
        raise RequestTimeout("the master's table kept changing", request=code.name)

    async def _request(self, command: Command) -> Command:
        response = await self._send_request(command)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.remark or "refused", response_code=response.code, request=command.code)
        return response

    async def _send_request(self, command: Command) -> Command:
        if self._instance:
            command.ext = {**command.fields, INSTANCE: self._instance}
        return await self._client.ask(self._address, command, RESPONSE_S)


def pull_at(commit: OffsetCommit) -> headers.PullHeader:
    return headers.PullHeader(
        consumer_group=commit.group,
        topic=commit.topic,
        queue_id=commit.queue_id,
        queue_offset=commit.offset,
        max_msg_nums=1,
        sys_flag=PullFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
