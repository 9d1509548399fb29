"""What a broker does for replication: the one place that says so while it runs."""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """The roles, by the original's names (``brokerRole``)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"  # a send waits for its slaves (H9)
    SLAVE = "SLAVE"


class Standing:
    """The role that a broker has now. The broker owns it, and its rooms ask it each time: none keeps what it heard."""

    def __init__(self, role: Role = Role.ASYNC_MASTER) -> None:
        self.become(role)

    def become(self, role: Role) -> None:
        """From now on. Plain attributes, as they are looked at for each message."""
        self.role = role
        self.is_slave, self.waits_for_slaves = role is Role.SLAVE, role is Role.SYNC_MASTER
