"""Fields of ours alone in responses that originals give without them; an original client passes over them."""

from __future__ import annotations

from msgspec import field

from tallystick.rocketmq.wire.headers import Header, OffsetResponse
from tallystick.rocketmq.wire.name_server_headers import RegisterBrokerResponse
from tallystick.rocketmq.wire.values import Int64


class OwnRegisterBrokerResponse(RegisterBrokerResponse, frozen=True):
    """To REGISTER_BROKER. ``displaced``: the address of a living broker that had the same name and id until now."""

    displaced: str | None = field(default=None, name="tallyDisplaced")


class QueueLimitResponse(OffsetResponse, frozen=True):
    """To GET_MIN_OFFSET: ``lacking`` if a slave never had the queue's first messages. To GET_MAX_OFFSET: ``lacking`` if
    it may never have had any of them."""

    lacking: bool | None = field(default=None, name="tallyLacksBeginning")


class SendBackResponse(Header, frozen=True):
    """To CONSUMER_SEND_MSG_BACK. ``copy``: the message is stored at this physical offset, but disk or slaves are late;
    ``disk_late``: the disk is, and the remark says what became of the slaves."""

    copy: Int64 | None = field(default=None, name="tallyCopy")
    disk_late: bool | None = field(default=None, name="tallyDiskLate")


class QueryOffsetResponse(OffsetResponse, frozen=True):
    """To QUERY_CONSUMER_OFFSET. ``mark``: that of the message before the offset; ``resets``: see below."""

    mark: str | None = field(default=None, name="tallyMark")
    resets: Int64 | None = field(default=None, name="tallyResets")


class UpdateOffsetResponse(Header, frozen=True):
    """To UPDATE_CONSUMER_OFFSET. ``reset_to``: the commit does not count, as somebody set the group to this offset.

    ``resets``: a counter that is higher whenever the group went back, or was set, on purpose; None is 0.
    """

    reset_to: Int64 | None = field(default=None, name="tallyResetTo")
    resets: Int64 | None = field(default=None, name="tallyResets")


class OffsetMovedResponse(Header, frozen=True):
    """To a pull, with the code PULL_OFFSET_MOVED. ``reset``: somebody set the group there, so that a consumer drops the
    messages that it has from below."""

    reset: bool | None = field(default=None, name="tallyReset")
