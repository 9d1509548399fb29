"""The process's memory: what it frees it keeps, where the C library can be told so (glibc).

A storage node takes and frees buffers of hundreds of kilobytes all the time. Given back to the system, each page of
them costs several times the copy of its bytes when it is needed again.
"""

from __future__ import annotations

import ctypes

# Parameters of ``mallopt``: what may lie free at the end of the heap, from which size on an allocation is a mapping of
# its own, and how many heaps there are: one, so that what one thread freed the others use.
_PARAMETERS = ((-1, 1 << 30), (-3, 32 * 1024 * 1024), (-8, 1))


def keep_freed_memory() -> bool:
    """Keep what this process frees, from now on. Returns False where the system has no such switch."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(parameter, value) for parameter, value in _PARAMETERS)
