"""This machine as the outside world of servers and clients: made in this one place."""

from __future__ import annotations

from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events
from tallystick.runtime.outside import MODEST_FILES, Outside
from tallystick.runtime.tcp import TcpNetwork


def this_machine(events: Events | None = None, *, open_files: int = MODEST_FILES) -> Outside:
    """Return what a server or client of this process works with; without ``events`` nobody hears what it tells.

    ``open_files``: that this process may have, as ``raise_limit`` returns it.
    """
    return Outside(TcpNetwork(), OsDisk(), SystemClock(), events or Events(), open_files)
