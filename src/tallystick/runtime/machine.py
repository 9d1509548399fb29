"""This machine as the outside world of servers and clients: made in this one place."""

from __future__ import annotations

from dataclasses import replace

from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events
from tallystick.runtime.outside import MODEST_FILES, Outside
from tallystick.runtime.tcp import TcpNetwork


def this_machine(events: Events | None = None, *, open_files: int = MODEST_FILES, keep_alive: bool = True) -> Outside:
    """Return what a server or client of this process works with; without ``events`` nobody hears what it tells.

    ``open_files``: that this process may have, as ``raise_limit`` returns it. ``keep_alive``: idle connections are
    probed.
    """
    return Outside(TcpNetwork(keep_alive=keep_alive), OsDisk(), SystemClock(), events or Events(), open_files)


def without_keep_alive(outside: Outside) -> Outside:
    """Return the same machine, whose idle connections are not probed."""
    return replace(outside, network=TcpNetwork(keep_alive=False))
