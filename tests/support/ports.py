"""Ports for servers that cannot be told to take any."""

from __future__ import annotations

from tallystick.runtime.ports import ReservedPort

_kept: list[ReservedPort] = []  # until the process ends: servers are killed and started again on the same port


def free_port(*offsets: int) -> int:
    """A port of 127.0.0.1 that nobody gets by chance; the ports at ``offsets`` from it are free too."""
    _kept.append(ReservedPort("127.0.0.1", *offsets))
    return _kept[-1].port
