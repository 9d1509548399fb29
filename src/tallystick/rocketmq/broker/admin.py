"""What a broker is asked besides sending, pulling, heartbeats and locks: a table of answers by request code.

Source: ``AdminBrokerProcessor``, ``ConsumerManageProcessor``, ``QueryMessageProcessor``.
"""

from __future__ import annotations

from tallystick.errors import BrokerError, TallyError
from tallystick.rocketmq.broker.answers import Later
from tallystick.rocketmq.broker.broker_requests import BrokerRequests
from tallystick.rocketmq.broker.group_requests import GroupRequests
from tallystick.rocketmq.broker.master_tables import INSTANCE
from tallystick.rocketmq.broker.message_requests import MessageRequests
from tallystick.rocketmq.broker.offset_requests import OffsetRequests
from tallystick.rocketmq.broker.page_requests import PageRequests
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.reset_requests import ResetRequests
from tallystick.rocketmq.broker.topic_requests import TopicRequests
from tallystick.rocketmq.broker.upkeep_requests import UpkeepRequests
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

# What a slave asks of the process whose log is proven to be its own, and of no other at the same address.
OF_SLAVES = frozenset(
    (
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_TABLE_PAGE,
        RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET,
    )
)  # fmt: skip


class Admin:
    """Answers requests one by one, each at once."""

    def __init__(self, parts: Parts) -> None:
        self._instance = parts.identity.instance
        self._answers = {
            **TopicRequests(parts).answers,
            **GroupRequests(parts).answers,
            **OffsetRequests(parts).answers,
            **MessageRequests(parts).answers,
            **BrokerRequests(parts).answers,
            **ResetRequests(parts).answers,
            **UpkeepRequests(parts).answers,
            **PageRequests(parts).answers,
        }

    def handle(self, link: Link, command: Command) -> Command | Later:
        """Never raises for what a peer can send; a code that nobody knows gets the original's answer."""
        answer = self._answers.get(command.code)
        if answer is None:
            return command.answer(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
            )
        try:
            if command.code in OF_SLAVES and command.fields.get(INSTANCE, self._instance) != self._instance:
                return command.answer(ResponseCode.SYSTEM_ERROR, "another process is the master here by now")
            return answer(link.peer, command)
        except BrokerError as error:
            return command.answer(error.response_code, error.message)
        except TallyError as error:  # a missing header field, a body that is none, a disk that fails
            return command.answer(ResponseCode.SYSTEM_ERROR, error.message)
