"""Reasons why a send or a pull is refused, with the texts of the original."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.rocketmq.wire.values import ResponseCode

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclass(frozen=True)
class Refusal:
    """A refusal. ``checked``: a send came as far as the checks of its topic; such responses name the region too."""

    code: ResponseCode
    remark: str
    checked: bool = True


REJECTED = Refusal(
    ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while", checked=False
)
OVERLOADED = Refusal(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while", checked=False)
