"""Codes of answers as exceptions."""

from __future__ import annotations

from typing import Any

from tallystick.errors import BrokerError, NoSuchTopic
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode


def refusal(answer: Command, **fields: Any) -> BrokerError:
    """What an answer other than SUCCESS says: the first line, as others are advice. ``response_code`` is its number."""
    kind = NoSuchTopic if answer.code == ResponseCode.TOPIC_NOT_EXIST else BrokerError
    remark = (answer.remark or "refused").partition("\n")[0]
    return kind(remark, response_code=answer.code, **fields)


def checked(answer: Command, **fields: Any) -> Command:
    """A good answer. Raises BrokerError, NoSuchTopic for any other."""
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, **fields)
    return answer
