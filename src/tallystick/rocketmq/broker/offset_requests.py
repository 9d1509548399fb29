"""Consumer offsets: committed, asked for, copied; and how far behind the groups are. Delay offsets, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tallystick.errors import BrokerError
from tallystick.rocketmq.broker.answers import OK, Answer, Later, refusal
from tallystick.rocketmq.broker.offsets import Commit
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.store.values import GetStatus
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import BrokerConsumeStats, ConsumeStats, QueueLag
from tallystick.rocketmq.wire.operator_headers import BrokerConsumeStatsHeader
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode

MAX_TABLE_BYTES = 16 * 1024 * 1024 - 1024  # of a body: a frame has 16 MiB, its header takes some of them
_REMEMBERED_HOSTS = 100


class OffsetRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._told: set[str] = set()  # hosts that have been reported
        self.answers: Mapping[int, Answer] = {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delays,
            RequestCode.GET_CONSUME_STATS: self._stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self._broker_stats,
        }

    def _query(self, peer: str, command: Command) -> Command:
        """A group without an offset begins at 0 where the queue is short and young, and else decides by itself."""
        header = headers.QueryOffsetHeader.of(command)
        offset = self._parts.offsets.get(header.topic, header.consumer_group, header.queue_id)
        if offset is None or offset < 0:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
            if not self._begins_in_memory(header.topic, header.queue_id):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return command.answer(OK, None, headers.OffsetAnswer(offset).to_fields())

    def _begins_in_memory(self, topic: str, queue_id: int) -> bool:
        first, end = self._parts.store.queue_range(topic, queue_id)
        if first > 0 or not end:
            return False
        found = self._parts.store.get(topic, queue_id, 0, 1, 1)
        return found.status is GetStatus.FOUND and not found.far_behind

    def _update(self, peer: str, command: Command) -> Command:
        header, parts = headers.UpdateOffsetHeader.of(command), self._parts
        topic, group = header.topic, header.consumer_group
        # A slave may not have heard of the group yet, and serves it all the same.
        known = parts.groups.get(group) if parts.settings.is_slave else parts.groups.all.get(group)
        if known is None:
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = parts.topics.get(topic)
        if config is None:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= header.queue_id < max(config.read_queues, config.write_queues) or header.commit_offset < 0:
            remark = f"No queue {header.queue_id} or no offset {header.commit_offset}, topic is {topic}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        if header.resets is not None:
            return self._take(command, Commit(topic, group, header.queue_id, header.commit_offset, header.resets))
        if not parts.offsets.commit(topic, group, header.queue_id, header.commit_offset):
            remark = f"This broker keeps {parts.offsets.most} offsets: a group gets no more of them (maxOffsets)."
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        return command.answer(OK, None, {})

    def _take(self, command: Command, commit: Commit) -> Command:
        if not self._parts.offsets.take(commit):
            remark = f"The offset of group {commit.group} was set since, topic is {commit.topic}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        return command.answer(OK, None, {})

    def _all(self, peer: str, command: Command) -> Later:
        """For an original slave. It does not know the pull offsets, and its parser skips only what is strict JSON."""
        answer = command.answer(OK)

        def when(send: Callable[[], None]) -> None:
            def made(pieces: list[bytes] | Exception) -> None:
                if isinstance(pieces, Exception):
                    remark = pieces.message if isinstance(pieces, BrokerError) else repr(pieces)
                    answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, remark
                    self._refused(peer, remark)
                else:
                    answer.body = b"".join(pieces)
                send()

            self._parts.sliced(self._bounded(dialect.write_lines(self._parts.offsets.table())), made)

        return Later(answer, when)

    def _bounded(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Raises BrokerError when they are more than a frame takes."""
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > MAX_TABLE_BYTES:
                remark = (
                    f"the consumer offsets have more than the {MAX_TABLE_BYTES} bytes of a frame: only a slave of "
                    "ours, which asks for pages, can copy them"
                )
                raise refusal(ResponseCode.SYSTEM_ERROR, remark)
            yield piece

    def _refused(self, peer: str, remark: str) -> None:
        """Said once a host: a slave asks every ten seconds."""
        host = peer.rpartition(":")[0]
        if host not in self._told and len(self._told) < _REMEMBERED_HOSTS:
            self._told.add(host)
            self._parts.events.emit("offsets not sent", peer=peer, reason=remark)

    def _delays(self, peer: str, command: Command) -> Command:
        return command.answer(OK, body=dialect.write(self._parts.delays.table))

    def _stats(self, peer: str, command: Command) -> Command:
        header, parts = headers.ConsumeStatsHeader.of(command), self._parts
        group, now_ms = header.consumer_group, parts.clock.wall_ms()
        queues: dict[MessageQueue, QueueLag] = {}
        tps = 0.0
        for topic in self._consumed(group, header.topic):
            queues.update(self._lags(topic, group))
            tps += parts.traffic.get_tps(topic, group, now_ms)
        return command.answer(OK, body=dialect.write(ConsumeStats(queues, tps)))

    def _broker_stats(self, peer: str, command: Command) -> Command:
        """All groups and what they consume; ``isOrder``: only of ordered topics."""
        only_ordered, parts = BrokerConsumeStatsHeader.of(command).is_order, self._parts
        found: list[dict[str, list[ConsumeStats]]] = []
        behind = in_flight = 0
        now_ms = parts.clock.wall_ms()
        for group in parts.groups.all:
            each: list[ConsumeStats] = []
            for topic in self._consumed(group, None):
                config = parts.topics.get(topic)
                if config is None or (only_ordered and not config.order):
                    continue
                lags = self._lags(topic, group)
                behind += sum(lag.broker_offset - lag.consumer_offset for lag in lags.values())
                in_flight += sum(lag.pull_offset - lag.consumer_offset for lag in lags.values())
                each.append(ConsumeStats(lags, parts.traffic.get_tps(topic, group, now_ms)))
            found.append({group: each})
        body = BrokerConsumeStats(parts.identity.address, found, behind, in_flight)
        return command.answer(OK, body=dialect.write(body))

    def _consumed(self, group: str, topic: str | None) -> Iterable[str]:
        """The topics to report: of those asked for what the connected members want, if any are connected."""
        topics = [topic] if topic and topic.strip() else self._parts.offsets.topics_of(group)
        connected = self._parts.clients.consumers(group)
        if connected is None or not connected.subscriptions:
            return topics
        return [topic for topic in topics if topic in connected.subscriptions]

    def _lags(self, topic: str, group: str) -> dict[MessageQueue, QueueLag]:
        config, offsets, store = self._parts.topics.get(topic), self._parts.offsets, self._parts.store
        lags: dict[MessageQueue, QueueLag] = {}
        for queue_id in range(config.read_queues if config is not None else 0):
            committed = max(0, offsets.get(topic, group, queue_id) or 0)
            pulled = max(committed, offsets.get_pulled(topic, group, queue_id) or 0)
            _, end = store.queue_range(topic, queue_id)
            last_ms = max(0, store.stored_at(topic, queue_id, committed - 1)) if committed else 0
            queue = MessageQueue(topic, self._parts.identity.name, queue_id)
            lags[queue] = QueueLag(end, committed, pulled, last_ms)
        return lags
