"""The bodies of responses about members of groups, piece by piece, as there may be thousands of members and of groups.

A piece is about one member. A group shows the members that it has when its turn comes. Short lists of ids are kept as
they were last written (``WrittenLists``): when a group changes, each of its members asks for its list.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from tallystick.rocketmq.broker.clients import Consumers, GroupMember
from tallystick.rocketmq.broker.statistics import separated
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import Connection, ConsumerConnections, ProducerInfo

MAX_WRITTEN_BYTES = 8 * 1024 * 1024  # of all groups: some long lists, or those of very many usual groups
_LIST_BYTES = 512  # that a list takes beside its body

_NOBODY = b'{"connectionSet":[]'  # with which a table without members begins


class WrittenLists:
    """The lists of groups' members that were asked for last, at most ``MAX_WRITTEN_BYTES`` of them. ``size``: of what
    is kept, in bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._lists: OrderedDict[str, tuple[int, bytes]] = OrderedDict()  # by group: of which change, and the body

    def get(self, group: str, change: int) -> bytes | None:
        """Returns the body with the members as of this change, None if that is not kept."""
        kept_change, body = self._lists.get(group, (-1, b""))
        if kept_change != change:
            return None
        self._lists.move_to_end(group)
        return body

    def put(self, group: str, change: int, body: bytes) -> None:
        if group in self._lists:
            self._drop(group)
        self._lists[group] = change, body
        self.size += _LIST_BYTES + len(body)
        while self.size > MAX_WRITTEN_BYTES:
            self._drop(next(iter(self._lists)))

    def _drop(self, group: str) -> None:
        _, body = self._lists.pop(group)
        self.size -= _LIST_BYTES + len(body)


def id_pieces(ids: Iterable[str]) -> Iterator[bytes]:
    """Yields the body ``ConsumerIds``, of one group."""
    yield b'{"consumerIdList":['
    yield from separated(map(dialect.write_strict, ids))
    yield b"]}"


def producer_pieces(members: Mapping[Link, GroupMember]) -> Iterator[bytes]:
    """Yields the body of the response to GET_PRODUCER_CONNECTION_LIST, of one group."""
    yield b'{"connectionSet":['
    yield from separated(_connections(members))
    yield b"]}"


def consumer_pieces(consumers: Consumers[Link]) -> Iterator[bytes]:
    """Yields the body ``ConsumerConnections``: the members of one group, and its subscriptions."""
    table = ConsumerConnections(
        [], consumers.consume_from, consumers.consume_type, consumers.message_model, dict(consumers.subscriptions)
    )
    text = dialect.write(table)
    assert text.startswith(_NOBODY)
    yield _NOBODY[:-1]
    yield from separated(_connections(consumers.members))
    yield b"]" + text[len(_NOBODY) :]


def all_producer_pieces(groups: Mapping[str, Mapping[Link, GroupMember]], started_ms: int) -> Iterator[bytes]:
    """Yields the body of the response to GET_ALL_PRODUCER_INFO, of all groups. ``started_ms`` is the wall clock when
    ``heard_at`` was 0."""

    def infos(members: Mapping[Link, GroupMember]) -> Iterator[bytes]:
        for link, member in list(members.items()):
            heard_ms = started_ms + int(member.heard_at * 1000)
            info = ProducerInfo(member.client_id, link.peer, member.language.value, member.version, heard_ms)
            yield dialect.write(info)

    yield b'{"data":{'
    between = b""
    for group in list(groups):
        members = groups.get(group)
        if members:
            yield b"%s%s:[" % (between, dialect.write(group))
            yield from separated(infos(members))
            yield b"]"
            between = b","
    yield b"}}"


def _connections(members: Mapping[Link, GroupMember]) -> Iterator[bytes]:
    for link, member in list(members.items()):
        yield dialect.write(Connection(member.client_id, link.peer, member.language.value, member.version))
