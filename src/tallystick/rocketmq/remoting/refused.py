"""Requests that a server refused, said once for each kind and host: an operator must see why a client gets nowhere.

A kind is the code of the request with that of the answer. Answers that are no refusals but the state of things, such as
"no such offset" or "nothing to pull", are not said.
"""

from __future__ import annotations

from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Events
from tallystick.runtime.once import Once

_REFUSALS = frozenset(
    (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
    )
)
_MOST_CHARACTERS = 200


class Refused:
    """Of one server; it remembers so many kinds and hosts as ``Once`` does."""

    def __init__(self, events: Events) -> None:
        self._events, self._told = events, Once()

    def answered(self, peer: str, request: Command, answer: Command) -> None:
        """``peer`` is host:port. Call it with every answer."""
        if answer.code not in _REFUSALS or not self._told.is_new((peer.rpartition(":")[0], request.code, answer.code)):
            return
        reason = (answer.remark or "").partition("\n")[0][:_MOST_CHARACTERS]
        self._events.emit(
            "request refused", peer=peer, code=request.code, language=request.language.value, answer=answer.code,
            reason=reason,
        )  # fmt: skip
