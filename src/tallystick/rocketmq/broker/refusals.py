"""Why a send or a pull is not done, and the texts of the original for it."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.rocketmq.wire.values import ResponseCode

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclass(frozen=True)
class Refusal:
    """``checked``: a send came as far as to the checks of its topic; such responses name the region too."""

    code: ResponseCode
    remark: str
    checked: bool = True


REJECTED = Refusal(
    ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while", checked=False
)
OVERLOADED = Refusal(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while", checked=False)
