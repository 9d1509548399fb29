"""Frames of remoting, one by one."""

from __future__ import annotations

from tallystick.rocketmq.wire.remoting import Command, FrameReader


def decode(frame: bytes) -> Command:
    """The one command of a whole frame. Raises RemoteProtocolError."""
    (command,) = FrameReader().take(frame)
    return command
