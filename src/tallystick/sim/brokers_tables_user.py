"""One who uses the tables of simulated brokers: an operator, and a consumer that commits where it is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tallystick.errors import Unavailable
from tallystick.rocketmq.broker.master_tables import pull_at
from tallystick.rocketmq.broker.offsets import OffsetCommit
from tallystick.rocketmq.broker.topics import DEFAULT_TOPIC
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.headers import (
    CreateTopicHeader,
    DeleteGroupHeader,
    TopicHeader,
    UpdateOffsetHeader,
)
from tallystick.rocketmq.wire.operator_headers import ResetOffsetHeader
from tallystick.rocketmq.wire.own_headers import UpdateOffsetResponse
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import GroupConfig, Perm, RequestCode, ResponseCode, TopicConfig
from tallystick.sim.brokers_hosts import PORT, BrokerHost
from tallystick.sim.brokers_judge import BrokersJudge
from tallystick.sim.brokers_plan import TablesPlan
from tallystick.sim.brokers_tables import Config
from tallystick.sim.brokers_views import store_of

WITHIN_S = 2.0
OVERLOADED = 0.3  # of the times
NAMES = 4  # of topics, and of groups, that are made and deleted


class _Unknown(Exception):
    """The outcome of a request is unknown; ``is_late``: it may still be."""

    def __init__(self, is_late: bool) -> None:
        self.is_late = is_late


class TablesUser:
    """It asks for one thing after the other, so what it was told is so. ``use`` a client of its own."""

    def __init__(
        self,
        plan: TablesPlan,
        *,
        brokers: Sequence[BrokerHost],
        topics: Sequence[str],
        queues: int,
        judge: BrokersJudge,
        rng: random.Random,
    ) -> None:
        """``queues`` are those of a topic."""
        self._plan, self._brokers, self._topics, self._queues = plan, brokers, topics, queues
        self._judge, self._random = judge, rng
        self._used_names: Counter[str] = Counter()  # names of this beginning that are used up
        self._positions: dict[tuple[str, int], int] = {}

    async def use(self, client: RemotingClient) -> None:
        steps = (self._commit, self._commit, self._commit, self._commit, self._topic, self._group, self._set)
        for _ in range(self._plan.steps):
            await asyncio.sleep(self._random.random() * self._plan.pause_s)
            await self._random.choice(steps)(client)

    def _name(self, kind: str, number: int = 0) -> str:
        return f"{kind}{number}-{self._used_names[f'{kind}{number}']}"

    def _use_up(self, kind: str, number: int = 0) -> None:
        """What was asked for may be done later: whatever is asked of this name from now on is not sure."""
        self._used_names[f"{kind}{number}"] += 1

    # An operator.

    async def _topic(self, client: RemotingClient) -> None:
        number = self._random.randrange(NAMES)
        name, queues = self._name("T", number), self._random.randint(1, 8)
        header = CreateTopicHeader(
            topic=name,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=int(Perm.READ | Perm.WRITE),
            topic_filter_type="SINGLE_TAG",
        )
        creation = request(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_fields())
        deletion = request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=name).to_fields())
        await self._order(client, number, TopicConfig(name, queues, queues), creation, deletion)

    async def _group(self, client: RemotingClient) -> None:
        number = self._random.randrange(NAMES)
        config = GroupConfig(self._name("G", number), retry_max_times=self._random.randint(1, 99))
        creation = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dialect.write(config))
        deletion = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(group=config.name).to_fields())
        await self._order(client, number, config, creation, deletion)

    async def _order(
        self, client: RemotingClient, number: int, config: Config, creation: Command, deletion: Command
    ) -> None:
        """Create or change a topic or a group, or now and then delete it."""
        is_deletion, tables, kind = self._random.random() < 0.3, self._judge.tables, type(config)
        tables.ordering(kind, config.name)
        try:
            response = await self._ask(client, self._brokers[0], deletion if is_deletion else creation)
        except _Unknown as unknown:
            if unknown.is_late:
                self._use_up("T" if kind is TopicConfig else "G", number)
            return
        if response is not None and response.code == ResponseCode.SUCCESS:
            tables.ordered(kind, config.name, None if is_deletion else config)

    async def _set(self, client: RemotingClient) -> None:
        """Set the group to another offset, where its consumer begins."""
        (topic, queue_id), group = self._queue(), self._name("t")
        offset = self._random.randint(0, self._positions.get((topic, queue_id), 0))
        place, master, tables = (topic, group, queue_id), self._brokers[0], self._judge.tables
        header = ResetOffsetHeader(topic=topic, group=group, timestamp=0, queue_id=queue_id, offset=offset)
        tables.setting(place, offset)
        command = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header.to_fields())
        try:
            response = await self._ask(client, master, command)
        except _Unknown as unknown:
            if unknown.is_late:
                self._begin_anew()
            return
        tables.responded(master, place)
        if response is not None and response.code == ResponseCode.SUCCESS:
            tables.was_set(master, place, offset)
            self._positions[topic, queue_id] = offset

    # A consumer.

    def _queue(self) -> tuple[str, int]:
        return self._random.choice(self._topics), self._random.randrange(self._queues)

    def _begin_anew(self) -> None:
        self._use_up("t")
        self._positions.clear()

    async def _commit(self, client: RemotingClient) -> None:
        """Commit at the master, or at a slave where the master is dead or overloaded."""
        there = [host for host in self._brokers if host.answers]
        if not there:
            return
        host = self._random.choice(there) if there[0].is_slave or self._random.random() < OVERLOADED else there[0]
        topic, queue_id = self._queue()
        before = self._positions.get((topic, queue_id), 0)
        offset, end = before, store_of(host).queue_range(topic, queue_id)[1]
        if not host.is_slave:
            offset = max(0, min(before, end) - self._goes_back())
        offset = max(offset, min(offset + self._random.randint(1, 40), end))
        commit = OffsetCommit(topic, self._name("t"), queue_id, offset)
        place = topic, commit.group, queue_id
        has_heard = self._judge.tables.committing(host, place, offset)
        try:
            await self._ask(client, host, request(RequestCode.PULL_MESSAGE, pull_at(commit).to_fields()))
            if await self._commit_at(client, host, commit, went_back=offset < before):
                self._judge.tables.committed(host, place, offset, has_heard=has_heard)
        except _Unknown as unknown:
            self._judge.tables.in_doubt(place)
            if unknown.is_late:
                self._begin_anew()

    def _goes_back(self) -> int:
        """Returns by how much a commit goes back: a new owner of a queue begins where the one before had committed."""
        return self._random.choice((0, 0, 0, 0, 0, 0, 0, 5, 50))

    async def _commit_at(
        self, client: RemotingClient, host: BrokerHost, commit: OffsetCommit, *, went_back: bool
    ) -> bool:
        """Commit at one broker. Returns whether it counts."""
        header = UpdateOffsetHeader(
            consumer_group=commit.group,
            topic=commit.topic,
            queue_id=commit.queue_id,
            commit_offset=commit.offset,
            went_back=went_back or None,
        )
        response = await self._ask(client, host, request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields()))
        if response is None or response.code != ResponseCode.SUCCESS:
            return False
        reset_to = UpdateOffsetResponse.of(response).reset_to
        self._positions[commit.topic, commit.queue_id] = commit.offset if reset_to is None else reset_to
        return reset_to is None

    async def _ask(self, client: RemotingClient, host: BrokerHost, command: Command) -> Command | None:
        """Returns the response. Returns None if the request was never executed. Raises _Unknown."""
        process: Any = host.process
        try:
            return await client.ask(f"{host.address}:{PORT}", command, WITHIN_S)
        except Unavailable as error:
            if error.ambiguous:
                raise _Unknown(process is not None and process.alive) from error
            return None
