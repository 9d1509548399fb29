"""Requests about clients: heartbeats, members of groups, and queue locks (``ClientManageProcessor``,
``RebalanceLockManager``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from tallystick.errors import RemoteProtocolError, StorageError
from tallystick.rocketmq.broker.clients import MAX_GROUPS
from tallystick.rocketmq.broker.member_lists import (
    WrittenLists,
    all_producer_pieces,
    consumer_pieces,
    id_pieces,
    producer_pieces,
)
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import respond_in_slices
from tallystick.rocketmq.remoting.backlog import FULL_S
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.server import CLOSE_EACH_TURN
from tallystick.rocketmq.remoting.server_requests import ServerRequests
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import ConsumerIds, LockRequest
from tallystick.rocketmq.wire.operator_headers import RunningInfoHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.signature import unsigned_fields
from tallystick.rocketmq.wire.values import (
    RETRY_PREFIX,
    ConsumerGroup,
    Heartbeat,
    MessageQueue,
    RequestCode,
    ResponseCode,
)
from tallystick.runtime.turn_steps import TurnSteps

SCAN_S = 10.0  # how often silent clients are looked for
CALL_S = 10.0  # for a client to respond to an operator's request
MAX_FORWARDED_BYTES = 4096  # of the fields of such a request: they go on as they came
TELL_EACH_TURN = 500  # members of changed groups, that is some milliseconds
FORGET_EACH_TURN = 1000  # groups of connections that ended, or steps of locks that did: some milliseconds
FIND_EACH_TURN = 5_000  # who they are: a millisecond, or one group of very many more
MAX_BEAT_BYTES = 256 * 1024  # of a heartbeat: some thousand groups, read within a turn of the loop
MAX_SUBSCRIPTIONS = 500  # of one group: real ones have some tens, and all are kept
LOCK_AT_ONCE = 1000  # queues: some milliseconds
MAX_NAME_CHARS = 1024  # of a client's id: thousands are kept, and listed
MAX_LOCK_NAME_BYTES = 255  # of it, and of a group, in the file of locks: each has both
IDS_AT_ONCE_CHARS = 256 * 1024  # of the ids of a group's members: some milliseconds


class ClientRequests:
    """``start`` it, and ``close`` it."""

    def __init__(self, parts: Parts, server_requests: ServerRequests) -> None:
        self._parts, self._clients, self._server_requests = parts, parts.clients, server_requests
        self._lists = WrittenLists()
        self._reported_full = False  # that no locks are left
        self._changed_groups: dict[str, None] = {}  # groups of whose members none is in ``_to_tell`` yet
        self._to_tell: dict[Link, dict[str, None]] = {}  # groups that changed, by member
        self._tell_handle: asyncio.Handle | None = None
        self._forgetting = TurnSteps(FORGET_EACH_TURN)
        self._closing = TurnSteps(CLOSE_EACH_TURN)
        self._scanner: asyncio.TimerHandle | None = None
        self.handlers: Mapping[int, Handler] = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._leave,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def start(self) -> None:
        self._scanner = asyncio.get_running_loop().call_later(SCAN_S, self._scan)

    def close(self) -> None:
        self._forgetting.close()
        self._closing.close()
        for handle in (self._scanner, self._tell_handle):
            if handle is not None:
                handle.cancel()

    def closed(self, link: Link) -> None:
        self._to_tell.pop(link, None)
        self._forgetting.run(self._forget(link))

    def _forget(self, link: Link) -> Iterator[None]:
        for groups in self._clients.closed(link):
            self._charge()
            self._notify(groups)
            yield

    def _charge(self) -> None:
        """Count what the clients' groups take for the connections that brought it."""
        for link, size in self._clients.take_charges().items():
            link.keep(size)

    def _scan(self) -> None:
        self.start()
        self._forgetting.run(self._parts.locks.prune(self._parts.clock.now()))
        self._closing.run(self._close_silent())

    def _close_silent(self) -> Iterator[None]:
        for link in self._clients.expired(self._parts.clock.now()):
            link.abort("its client sent no heartbeat for too long")
            yield

    # Heartbeats

    def _heartbeat(self, link: Link, command: Command, reply: Reply) -> Command:
        beat = dialect.read_short(command.body, Heartbeat, most_bytes=MAX_BEAT_BYTES)
        _check_name("a client's id", beat.client_id)
        for group in beat.consumers:
            _check_subscriptions(group)
        needs_subscriptions = beat.fingerprint == 0 or self._clients.wants_subscriptions(beat)
        groups = self._may_consume(link, beat.consumers[:MAX_GROUPS])
        now = self._parts.clock.now()
        self._notify(self._clients.heartbeat_received(link, beat, groups, command.language, command.version, now))
        self._charge()
        return command.response(
            ResponseCode.SUCCESS, None, headers.HeartbeatResponse(True, needs_subscriptions).to_fields()
        )

    def _may_consume(self, link: Link, groups: Sequence[ConsumerGroup]) -> list[ConsumerGroup]:
        """Returns the groups that may have retry topics from now on. New ones are made in one step, which bounds their
        number."""
        configs = self._parts.groups.get_all((group.name for group in groups), link.peer)
        self._parts.topics.create_retries({RETRY_PREFIX + name: one.retry_queues for name, one in configs.items()})
        return [group for group in groups if group.name in configs]

    def _leave(self, link: Link, command: Command, reply: Reply) -> Command:
        header = headers.UnregisterClientHeader.of(command)
        self._notify(self._clients.client_left(link, header.producer_group, header.consumer_group))
        self._charge()
        return command.response(ResponseCode.SUCCESS)

    def _notify(self, groups: Iterable[str]) -> None:
        if not self._parts.settings.notify_ids_changed:
            return
        self._changed_groups.update(dict.fromkeys(groups))
        if self._changed_groups and self._tell_handle is None:
            self._tell_handle = asyncio.get_running_loop().call_soon(self._tell_some)

    def _tell_some(self) -> None:
        """Tell members that their group changed. A group that changed again in between is told once, and a member that
        does not read waits."""
        self._tell_handle = None
        remaining, find = TELL_EACH_TURN, FIND_EACH_TURN
        full_links: dict[Link, dict[str, None]] = {}
        while remaining:
            if not self._to_tell:
                if not self._changed_groups or find <= 0:
                    break
                find -= self._find_members(next(iter(self._changed_groups)))
                continue
            link, groups = next(iter(self._to_tell.items()))
            del self._to_tell[link]
            if not link.alive:
                continue
            if link.full:
                full_links.setdefault(link, {}).update(groups)
                continue
            for group in list(islice(groups, remaining)):
                del groups[group]
                remaining -= 1
                fields = headers.ConsumerGroupHeader(group).to_fields()
                self._server_requests.tell(link, request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields, one_way=True))
            if groups:
                self._to_tell[link] = groups
        is_more = bool(self._changed_groups or self._to_tell)  # as it is now: those that wait are put there again
        for link, groups in full_links.items():
            self._to_tell.setdefault(link, {}).update(groups)
        if is_more or full_links:
            loop = asyncio.get_running_loop()
            self._tell_handle = loop.call_soon(self._tell_some) if is_more else loop.call_later(FULL_S, self._tell_some)

    def _find_members(self, group: str) -> int:
        """Find the members of a group that changed. Returns their number plus one."""
        del self._changed_groups[group]
        consumers, config = self._clients.consumers(group), self._parts.groups.all.get(group)
        if consumers is None or (config is not None and not config.notify_ids_changed):
            return 1
        for link in consumers.members:
            self._to_tell.setdefault(link, {})[group] = None
        return 1 + len(consumers.members)

    # Groups

    def _consumer_ids(self, link: Link, command: Command, reply: Reply) -> Command | None:
        """Respond with the members of a group. A short list is made at once, and kept for the others that ask."""
        group = headers.ConsumerGroupHeader.of(command).consumer_group
        consumers = self._clients.consumers(group)
        if consumers is None:
            return command.response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        body = self._lists.get(group, consumers.change)
        if body is not None:
            return command.response(ResponseCode.SUCCESS, body=body)
        ids = list(dict.fromkeys([member.client_id for member in consumers.members.values()]))
        if sum(map(len, ids)) <= IDS_AT_ONCE_CHARS:
            body = dialect.write_strict(ConsumerIds(ids))
            self._lists.put(group, consumers.change, body)
            return command.response(ResponseCode.SUCCESS, body=body)
        response = command.response(ResponseCode.SUCCESS)
        respond_in_slices(self._parts, response, id_pieces(ids), f"the members of group {group}", reply)
        return None

    def _consumers(self, link: Link, command: Command, reply: Reply) -> Command | None:
        group = headers.ConsumerGroupHeader.of(command).consumer_group
        consumers = self._clients.consumers(group)
        if consumers is None:
            return command.response(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        response = command.response(ResponseCode.SUCCESS)
        respond_in_slices(self._parts, response, consumer_pieces(consumers), f"the members of group {group}", reply)
        return None

    def _producers(self, link: Link, command: Command, reply: Reply) -> Command | None:
        group = headers.ProducerGroupHeader.of(command).producer_group
        members = self._clients.producers(group)
        if members is None:
            return command.response(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        response = command.response(ResponseCode.SUCCESS)
        respond_in_slices(self._parts, response, producer_pieces(members), f"the members of group {group}", reply)
        return None

    def _all_producers(self, link: Link, command: Command, reply: Reply) -> None:
        clock = self._parts.clock
        started_ms = clock.wall_ms() - int(clock.now() * 1000)  # when ``heard`` was 0
        pieces = all_producer_pieces(self._clients.producer_groups, started_ms)
        respond_in_slices(self._parts, command.response(ResponseCode.SUCCESS), pieces, "all producers", reply)

    def _running_info(self, link: Link, command: Command, reply: Reply) -> Command | None:
        """Forward the request to the consumer, and its response to the client."""
        size = sum(len(name) + len(value) for name, value in command.fields.items())
        if size > MAX_FORWARDED_BYTES:
            raise RemoteProtocolError(f"a question to a consumer has at most {MAX_FORWARDED_BYTES} bytes", bytes=size)
        header = RunningInfoHeader.of(command)
        group, client = header.consumer_group, header.client_id
        consumers = self._clients.consumers(group)
        members = consumers.members.items() if consumers is not None else ()
        member_link = next((link for link, member in members if member.client_id == client), None)
        if member_link is None:
            return command.response(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client}> not online")
        response = command.response(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client}> gave no answer")
        client_request = request(command.code, unsigned_fields(command))

        def done(client_response: Command | None) -> None:
            if client_response is not None:
                response.code, response.remark, response.body = (
                    client_response.code,
                    client_response.remark,
                    client_response.body,
                )
            reply(response)

        if reply.is_wanted and not self._server_requests.ask(member_link, client_request, CALL_S, done):
            return command.response(ResponseCode.SYSTEM_BUSY, "too many questions to consumers wait")
        return None

    # Locks

    def _lock(self, link: Link, command: Command, reply: Reply) -> None:
        """Lock queues that this broker has; the original locks any."""
        lock_request = dialect.read_short(command.body, LockRequest)
        _check_lock_name("a client's id", lock_request.client_id)
        _check_lock_name("a group's name", lock_request.group)
        response, then = command.response(ResponseCode.SUCCESS), self._when_saved(lock_request, reply)
        if len(lock_request.queues) > LOCK_AT_ONCE:
            pieces = self._locking(link, lock_request)
            respond_in_slices(self._parts, response, pieces, "the queues that are locked", reply, then=then)
        else:
            response.body = b"".join(self._locking(link, lock_request))
            then(response)

    def _when_saved(self, lock_request: LockRequest, reply: Reply) -> Callable[[Command], None]:
        """Returns a function that passes a response to ``reply`` when the owners of these queues are on the disk; the
        response is an error if they cannot be saved."""
        locks, saved = self._parts.locks, self._parts.locks_saved

        def wait(response: Command) -> None:
            def done(error: StorageError | None) -> None:
                if error is not None and response.code == ResponseCode.SUCCESS:
                    response.code, response.remark = ResponseCode.SYSTEM_ERROR, f"the locks cannot be saved: {error}"
                    response.body = b""
                reply(response)

            saved(locks.newest(lock_request.group, lock_request.client_id, lock_request.queues), done)

        return wait

    def _locking(self, link: Link, lock_request: LockRequest) -> Iterator[bytes]:
        """Lock queues in steps, the last of which yields a ``LockResponse``."""
        locks, between = self._parts.locks, b'{"lockOKMQSet":['
        for start in range(0, len(lock_request.queues), LOCK_AT_ONCE):
            if locked_queues := self._lock_some(link, lock_request, lock_request.queues[start : start + LOCK_AT_ONCE]):
                yield between + dialect.write_strict(locked_queues, by_name=True)[1:-1]
                between = b","
            else:
                yield b""
        host = link.peer.rpartition(":")[0]
        self._reported_full = self._reported_full and not locks.has_room(host, is_member=False)
        yield b"]}" if between == b"," else between + b"]}"

    def _lock_some(self, link: Link, lock_request: LockRequest, some: Sequence[MessageQueue]) -> list[MessageQueue]:
        locks = self._parts.locks
        group = self._clients.consumers(lock_request.group)
        is_member = group is not None and link in group.members
        queues = [queue for queue in some if self._is_here(queue)]
        host, now, before = link.peer.rpartition(":")[0], self._parts.clock.now(), locks.left_out
        locked_queues = locks.lock(lock_request.group, lock_request.client_id, host, queues, now, is_member=is_member)
        if locks.left_out > before and not self._reported_full:
            self._reported_full = True
            self._parts.events.emit("no locks left", peer=link.peer, group=lock_request.group, is_member=is_member)
        return locked_queues

    def _is_here(self, queue: MessageQueue) -> bool:
        config = self._parts.topics.get(queue.topic) if queue.broker == self._parts.identity.name else None
        return config is not None and 0 <= queue.queue_id < max(config.read_queues, config.write_queues)

    def _unlock(self, link: Link, command: Command, reply: Reply) -> Command:
        lock_request = dialect.read_short(command.body, LockRequest)
        self._parts.locks.unlock(lock_request.group, lock_request.client_id, lock_request.queues)
        return command.response(ResponseCode.SUCCESS)


def _check_subscriptions(group: ConsumerGroup) -> None:
    """Raises RemoteProtocolError for a group that subscribes to more topics than are kept."""
    if len(group.subscriptions) > MAX_SUBSCRIPTIONS:
        reason = f"a group of a heartbeat has at most {MAX_SUBSCRIPTIONS} subscriptions"
        raise RemoteProtocolError(reason, group=group.name[:MAX_NAME_CHARS], subscriptions=len(group.subscriptions))


def _check_lock_name(what: str, name: str) -> None:
    """Raises RemoteProtocolError for a name that makes a long line: in JSON a character may take six bytes."""
    if (size := len(dialect.write_strict(name)) - 2) > MAX_LOCK_NAME_BYTES:
        raise RemoteProtocolError(f"{what} that locks queues has at most {MAX_LOCK_NAME_BYTES} bytes", bytes=size)


def _check_name(what: str, name: str) -> None:
    """Raises RemoteProtocolError for a name that no client has: an id is an address, a process and some words."""
    if len(name) > MAX_NAME_CHARS:
        raise RemoteProtocolError(f"{what} has at most {MAX_NAME_CHARS} characters", chars=len(name))
