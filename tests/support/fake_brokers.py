"""A broker of a few lines, in memory: enough of one for tests of clients. A test can say what it answers instead."""

from __future__ import annotations

from collections.abc import Callable, Collection

from support.announcing import announcement
from support.machines import machine
from tallystick.codec.records import encode_records, java_hash, topic_field
from tallystick.codec.steps import finished
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import ConsumerIds, LockRequest, LockResponse, QueueStats, TopicStats
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.record import decode_batch, decode_properties
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import Heartbeat, MessageQueue, PullFlag, RequestCode, ResponseCode, TopicConfig

HOST = encode_host("127.0.0.1", 10911)
Queue = tuple[str, int]
Content = tuple[int, bytes, bytes]
React = Callable[[Link, Command], Command | None]


class FakeBroker:
    """``react`` by request code goes first; None from it means no answer. Slaves share ``queues`` with their master."""

    def __init__(self, name: str = "b", broker_id: int = 0) -> None:
        self.name, self.broker_id = name, broker_id
        self.queues: dict[Queue, list[Content]] = {}
        self.first: dict[Queue, int] = {}
        self.missing: dict[Queue, Collection[int]] = {}  # offsets without a message, as a takeover leaves them
        self.queue_count = 2  # of each topic
        self.unknown_topics: set[str] = set()
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, dict[str, Link]] = {}
        self.heartbeats: list[Heartbeat] = []
        self.asked: list[Command] = []
        self.react: dict[int, React] = {}
        self.suggests = 0
        self.not_locked: set[MessageQueue] = set()  # others have them
        self.pull_count = 1 << 30  # messages of one pull at most
        self._held: list[tuple[Link, Command]] = []
        self._answers: dict[int, React] = {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.CONSUMER_SEND_MSG_BACK: lambda link, command: command.response(0),
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: lambda link, command: command.response(0),
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_TOPIC_STATS_INFO: self._stats,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._ids,
        }

    async def start(self) -> None:
        self._server = RemotingServer(machine(), self, RemotingSettings())
        host, port = await self._server.start("127.0.0.1", 0)
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        await self._server.close()

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        for link, command in requests:
            self.asked.append(command)
            answer = (self.react.get(command.code) or self._answers[command.code])(link, command)
            if answer is not None and not command.is_one_way:
                link.send(answer)

    def closed(self, link: Link) -> None:
        self._held = [(held, command) for held, command in self._held if held is not link]

    def count(self, code: int) -> int:
        return sum(command.code == code for command in self.asked)

    # Answers

    def _send(self, link: Link, command: Command) -> Command:
        header = headers.read_send(command)
        queue = self.queues.setdefault((header.topic, header.queue_id), [])
        offset = len(queue)
        if header.batch:
            queue += [(flag, bytes(body), bytes(properties)) for flag, body, properties in decode_batch(command.body)]
        else:
            queue.append((header.sys_flag, bytes(command.body), (header.properties or "").encode()))
        self.wake()
        return command.response(
            0,
            None,
            headers.SendResponse(
                queue_id=header.queue_id, transaction_id=None, msg_id="F" * 32, queue_offset=offset
            ).to_fields(),
        )

    def wake(self) -> None:
        """Answer held pulls that have something now."""
        held, self._held = self._held, []
        for link, command in held:
            answer = self._pull(link, command)
            if answer is not None:
                link.send(answer)

    def _pull(self, link: Link, command: Command) -> Command | None:
        header = headers.PullHeader.of(command)
        queue = self.queues.get((header.topic, header.queue_id), [])
        first = self.first.get((header.topic, header.queue_id), 0)
        at, end = header.queue_offset, len(queue)
        if at == end and header.sys_flag & PullFlag.SUSPEND:
            self._held.append((link, command))
            return None
        if at == end:
            return self._pulled(command, ResponseCode.PULL_NOT_FOUND, at, first, end)
        if not first <= at < end and self.broker_id:  # a slave leaves offsets alone
            return self._pulled(command, ResponseCode.PULL_RETRY_IMMEDIATELY, at, first, end)
        if not first <= at < end:
            return self._pulled(command, ResponseCode.PULL_OFFSET_MOVED, first if at < first else end, first, end)
        codes = {java_hash(tag) for tag in (header.subscription or "*").split(" || ")}
        wanted = codes if header.subscription != "*" else set()
        stop = min(end, at + min(header.max_msg_nums, self.pull_count))
        missing = self.missing.get((header.topic, header.queue_id), ())
        rows = [
            (
                topic_field(header.topic),
                header.queue_id,
                offset,
                queue[offset][0],
                1,
                HOST,
                0,
                [(0, queue[offset][1], queue[offset][2])],
            )
            for offset in range(at, stop)
            if offset not in missing
            if not wanted or java_hash(decode_properties(queue[offset][2]).get("TAGS", "")) in wanted
        ]
        code = ResponseCode.SUCCESS if rows else ResponseCode.PULL_RETRY_IMMEDIATELY
        return self._pulled(command, code, stop, first, end, encode_records(rows, 0, 2, HOST))

    def _pulled(self, command: Command, code: int, at: int, first: int, end: int, body: bytes = b"") -> Command:
        answer = headers.PullResponse(
            suggest_which_broker_id=self.suggests, next_begin_offset=at, max_offset=end, min_offset=first
        )
        return command.response(code, None, answer.to_fields(), body)

    def _query_offset(self, link: Link, command: Command) -> Command:
        header = headers.QueryOffsetHeader.of(command)
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return command.response(ResponseCode.QUERY_NOT_FOUND, "Not found")
        return command.response(0, None, headers.OffsetResponse(offset=offset).to_fields())

    def _update_offset(self, link: Link, command: Command) -> Command:
        header = headers.UpdateOffsetHeader.of(command)
        self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return command.response(0)

    def _min_offset(self, link: Link, command: Command) -> Command:
        header = headers.QueueHeader.of(command)
        return command.response(0, None, {"offset": str(self.first.get((header.topic, header.queue_id), 0))})

    def _max_offset(self, link: Link, command: Command) -> Command:
        header = headers.QueueHeader.of(command)
        return command.response(0, None, {"offset": str(len(self.queues.get((header.topic, header.queue_id), [])))})

    def _stats(self, link: Link, command: Command) -> Command:
        topic = headers.TopicHeader.of(command).topic
        if topic in self.unknown_topics:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        stats = {
            MessageQueue(topic, self.name, number): QueueStats(
                self.first.get((topic, number), 0), len(self.queues.get((topic, number), [])), 0
            )
            for number in range(self.queue_count)
        }
        return command.response(0, body=dialect.write(TopicStats(stats)))

    def _search(self, link: Link, command: Command) -> Command:
        return command.response(0, None, {"offset": str(headers.SearchOffsetHeader.of(command).timestamp % 100)})

    def _heartbeat(self, link: Link, command: Command) -> Command:
        heartbeat = dialect.read_as(bytes(command.body), Heartbeat)
        self.heartbeats.append(heartbeat)
        for group in heartbeat.consumers:
            members = self.members.setdefault(group.name, {})
            if heartbeat.client_id not in members:
                members[heartbeat.client_id] = link
                self._notify(group.name)
        return command.response(0)

    def _unregister(self, link: Link, command: Command) -> Command:
        header = headers.UnregisterClientHeader.of(command)
        if header.consumer_group is not None:
            self.members.get(header.consumer_group, {}).pop(header.client_id, None)
            self._notify(header.consumer_group)
        return command.response(0)

    def _notify(self, group: str) -> None:
        for link in self.members.get(group, {}).values():
            link.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, one_way=True))

    def _lock(self, link: Link, command: Command) -> Command:
        asked = dialect.read_as(bytes(command.body), LockRequest)
        taken = [queue for queue in asked.queues if queue not in self.not_locked]
        return command.response(0, body=dialect.write(LockResponse(taken)))

    def _ids(self, link: Link, command: Command) -> Command:
        members = self.members.get(headers.ConsumerGroupHeader.of(command).consumer_group)
        if not members:
            return command.response(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return command.response(0, body=dialect.write(ConsumerIds(list(members))))


class FakeCluster:
    """A name server of ours, and fake brokers that it knows."""

    name_server: NameServer

    def __init__(self) -> None:
        self.brokers: list[FakeBroker] = []
        self._registrations = 0

    async def start(self) -> None:
        self.name_server = NameServer(NameServerSettings(port=0), machine())
        host, port = await self.name_server.start()
        self.address = f"{host}:{port}"

    async def add(
        self, name: str = "b", broker_id: int = 0, *, queues: int = 2, topics: tuple[str, ...] = ("T", "X")
    ) -> FakeBroker:
        broker = FakeBroker(name, broker_id)
        await broker.start()
        self.brokers.append(broker)
        self.register(broker, queues=queues, topics=topics)
        return broker

    def register(self, broker: FakeBroker, *, queues: int = 2, topics: tuple[str, ...] = ("T", "X")) -> None:
        broker.queue_count = queues
        table = {topic: TopicConfig(topic, queues, queues) for topic in topics}
        self._registrations += 1
        said = announcement(
            broker.broker_id, table, name=broker.name, address=broker.address, version=self._registrations
        )
        assert finished(self.name_server.routes.register(said, broker, 0.0)) is not None

    async def stop(self) -> None:
        for broker in self.brokers:
            await broker.stop()
        await self.name_server.close()
