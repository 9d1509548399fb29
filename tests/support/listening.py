"""Which doors of a process are open to other machines. Linux only: read from /proc."""

from __future__ import annotations

import os

LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
LISTENING = "0A"


def open_to_others(pid: int) -> list[int]:
    """Ports on which the process accepts connections that do not come from this machine."""
    sockets = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{number}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    ports = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as lines:
            for line in list(lines)[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                address, _, port = local.partition(":")
                if state == LISTENING and address not in LOOPBACK and f"socket:[{inode}]" in sockets:
                    ports.append(int(port, 16))
    return ports
