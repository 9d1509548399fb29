"""Responses with error codes become exceptions."""

from __future__ import annotations

from typing import Any

from tallystick.errors import BrokerError, NoSuchTopic
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode


def refusal(response: Command, **fields: Any) -> BrokerError:
    """Returns the exception for a response other than SUCCESS, with the first line of its remark: others are advice."""
    kind = NoSuchTopic if response.code == ResponseCode.TOPIC_NOT_EXIST else BrokerError
    remark = (response.remark or "refused").partition("\n")[0]
    return kind(remark, response_code=response.code, **fields)


def require_success(response: Command, **fields: Any) -> Command:
    """Returns the response if its code is SUCCESS. Raises BrokerError, NoSuchTopic for any other code."""
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response, **fields)
    return response
