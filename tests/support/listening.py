"""Which doors of a process are open to other machines. Linux only: read from /proc."""

from __future__ import annotations

import os
import re

# 127.0.0.0/8, the same in IPv6's words, and ::1; the bytes of four are in reverse.
LOOPBACK = re.compile("(0{16}FFFF0000)?[0-9A-F]{6}7F|0{24}01000000")
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
                if state == LISTENING and not LOOPBACK.fullmatch(address) and f"socket:[{inode}]" in sockets:
                    ports.append(int(port, 16))
    return ports
