"""The requests to a broker besides sends, pulls, heartbeats and locks: processors with their handlers.

Source: ``AdminBrokerProcessor``, ``ConsumerManageProcessor``, ``QueryMessageProcessor``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tallystick.rocketmq.broker.broker_requests import BrokerRequests
from tallystick.rocketmq.broker.copy_proof import UNPROVEN
from tallystick.rocketmq.broker.group_requests import GroupRequests
from tallystick.rocketmq.broker.master_tables import INSTANCE
from tallystick.rocketmq.broker.message_requests import MessageRequests
from tallystick.rocketmq.broker.offset_requests import OffsetRequests
from tallystick.rocketmq.broker.page_requests import PageRequests
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.reset_requests import ResetRequests
from tallystick.rocketmq.broker.sink_requests import SinkRequests
from tallystick.rocketmq.broker.topic_requests import TopicRequests
from tallystick.rocketmq.broker.upkeep_requests import UpkeepRequests
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

# What a slave asks of the process whose log is proven to be its own, and of no other at the same address.
OF_SLAVES = frozenset(
    (
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TABLE_PAGE,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    )
)


_PROCESSORS = (
    TopicRequests, GroupRequests, OffsetRequests, MessageRequests, BrokerRequests, ResetRequests, UpkeepRequests,
    PageRequests, SinkRequests,
)  # fmt: skip


def admin_processors(parts: Parts) -> Iterator[Mapping[int, Handler]]:
    """Returns the handlers of each processor."""
    instance = parts.identity.instance
    for processor in _PROCESSORS:
        handlers = processor(parts).handlers
        yield {
            code: _of_slaves(handler, instance) if code in OF_SLAVES else handler for code, handler in handlers.items()
        }


def _of_slaves(handler: Handler, instance: str) -> Handler:
    """Returns the handler for a slave that means this process, and for whoever does not say which."""

    def handle(link: Link, command: Command, reply: Reply) -> Command | None:
        named = command.fields.get(INSTANCE, instance)
        if named != instance:
            why = (
                "the logs are to be compared first"
                if named == UNPROVEN
                else "another process is the master here by now"
            )
            return command.response(ResponseCode.SYSTEM_ERROR, why)
        return handler(link, command, reply)

    return handle
