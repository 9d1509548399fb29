"""The role of a broker: the one place that has it while the broker runs."""

from __future__ import annotations

import enum

from tallystick.errors import UsageError
from tallystick.rocketmq.wire.values import MASTER_ID


class Role(enum.Enum):
    """The roles, by the original's names (``brokerRole``)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"  # a send waits for its slaves (H9)
    SLAVE = "SLAVE"


def check_role(role: Role, broker_id: int) -> None:
    """Raises UsageError when no broker of that id has that role."""
    if (role is Role.SLAVE) != (broker_id > MASTER_ID) or broker_id < MASTER_ID:
        raise UsageError("brokerId is 0 for a master and above 0 for a slave", value=broker_id)


class Standing:
    """The role and the id that a broker has now. The broker owns it, and its processors ask it each time: none keeps
    what it heard."""

    def __init__(self, role: Role = Role.ASYNC_MASTER, broker_id: int = MASTER_ID) -> None:
        self.become(role, broker_id)

    def become(self, role: Role, broker_id: int = MASTER_ID) -> None:
        """Take up a role. The attributes are plain, as they are read for each message."""
        self.role, self.broker_id = role, broker_id
        self.is_slave, self.waits_for_slaves = role is Role.SLAVE, role is Role.SYNC_MASTER
