"""The bodies of responses about members of groups, piece by piece, as there may be thousands of members and of groups.

A piece is about one member. A group shows the members that it has when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tallystick.rocketmq.broker.clients import Consumers, GroupMember
from tallystick.rocketmq.broker.statistics import separated
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import Connection, ConsumerConnections, ProducerInfo

_NOBODY = b'{"connectionSet":[]'  # with which a table without members begins


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
