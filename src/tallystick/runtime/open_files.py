"""How many files and sockets the kernel lets this process have."""

from __future__ import annotations

import resource


def raise_limit() -> int:
    """Ask for as many as may be asked for; how many it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
