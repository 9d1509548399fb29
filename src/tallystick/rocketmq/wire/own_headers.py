"""Fields of ours alone in answers that originals give without them; an original client passes over them."""

from __future__ import annotations

from msgspec import field

from tallystick.rocketmq.wire.headers import Header, OffsetAnswer, RegisterBrokerAnswer
from tallystick.rocketmq.wire.values import Int64


class RegisteredAnswer(RegisterBrokerAnswer, frozen=True):
    """Of REGISTER_BROKER. ``displaced``: where another that lives was registered by the same name and id until now."""

    displaced: str | None = field(default=None, name="tallyDisplaced")


class LimitAnswer(OffsetAnswer, frozen=True):
    """Of GET_MIN_OFFSET: ``lacking``, when a slave never had the queue's first messages. Of GET_MAX_OFFSET: when it
    may be that it never had any of them."""

    lacking: bool | None = field(default=None, name="tallyLacksBeginning")


class LateAnswer(Header, frozen=True):
    """Of CONSUMER_SEND_MSG_BACK. ``copy``: it is stored at this physical offset, but disk or slaves are late;
    ``disk_late``: both, and the remark says what became of the slaves."""

    copy: Int64 | None = field(default=None, name="tallyCopy")
    disk_late: bool | None = field(default=None, name="tallyDiskLate")


class CommittedAnswer(OffsetAnswer, frozen=True):
    """Of QUERY_CONSUMER_OFFSET. ``mark``: of the message before the offset; ``resets``: as of ``CommitAnswer``."""

    mark: str | None = field(default=None, name="tallyMark")
    resets: Int64 | None = field(default=None, name="tallyResets")


class CommitAnswer(Header, frozen=True):
    """Of UPDATE_CONSUMER_OFFSET. ``reset_to``: the commit does not count, as somebody set the group to this offset.

    ``resets``: a counter that is higher whenever the group went back, or was set, on purpose; None is 0.
    """

    reset_to: Int64 | None = field(default=None, name="tallyResetTo")
    resets: Int64 | None = field(default=None, name="tallyResets")


class MovedAnswer(Header, frozen=True):
    """Of a pull with the code PULL_OFFSET_MOVED. ``reset``: somebody set the group there, so that what a consumer has
    from below is not wanted either."""

    reset: bool | None = field(default=None, name="tallyReset")
