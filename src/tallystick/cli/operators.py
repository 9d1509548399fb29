"""Who runs a command, for the lines that say who did what."""

from __future__ import annotations

import getpass
import os
import socket


def operator() -> str:
    """Return ``account@machine``; of an account without a name, as containers have, its number."""
    try:
        account = getpass.getuser()
    except (OSError, KeyError):
        account = str(os.getuid())
    return f"{account}@{socket.gethostname()}"
