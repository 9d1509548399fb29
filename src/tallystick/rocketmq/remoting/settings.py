"""Settings of remoting, with the original's defaults where it has them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tallystick.errors import UsageError
from tallystick.runtime import keyfile
from tallystick.runtime.schema import Key, Part


@dataclass(frozen=True)
class RemotingSettings:
    """One line a setting; units in the names. Raises UsageError for values that cannot work."""

    connect_timeout_s: float = 3.0  # connectTimeoutMillis
    idle_s: float = 120.0  # a connection without a byte either way is closed (serverChannelMaxIdleTimeSeconds)
    max_connections: int = 4096  # of one server; one more is closed at once
    write_high_bytes: int = 256 * 1024  # encoded and unsent, above which no more is encoded and a server reads no more
    held_limit_bytes: int = 256 * 1024 * 1024  # unsent responses and unfinished requests of all connections of a server
    stalled_s: float = 60.0  # who takes none of its responses for so long is closed by a server

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise UsageError(f"{field.name} must be above 0", value=getattr(self, field.name))


KEYS = Part(
    RemotingSettings,
    {
        "maxHeldBytes": Key("held_limit_bytes", keyfile.integer),  # ours only
    },
)
