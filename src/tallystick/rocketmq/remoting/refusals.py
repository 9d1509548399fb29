"""Requests that a server refused, logged once for each kind and host: an operator must see why a client gets nowhere.

A kind is the code of the request with that of the response. Responses that are no refusals but the state of things,
such as "no such offset" or "nothing to pull", are not logged.
"""

from __future__ import annotations

from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Events
from tallystick.runtime.once import Once

_REFUSAL_CODES = frozenset(
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


class Refusals:
    """The refusals of one server; it remembers as many kinds and hosts as ``Once`` does."""

    def __init__(self, events: Events) -> None:
        self._events, self._reports = events, Once()

    def responded(self, peer: str, request: Command, response: Command) -> None:
        """The server responded to a request of ``peer``, which is host:port. Call it with every response."""
        if response.code not in _REFUSAL_CODES or not self._reports.is_new(
            (peer.rpartition(":")[0], request.code, response.code)
        ):
            return
        reason = (response.remark or "").partition("\n")[0][:_MOST_CHARACTERS]
        self._events.emit(
            "request refused",
            peer=peer,
            code=request.code,
            language=request.language.value,
            answer=response.code,
            reason=reason,
        )
