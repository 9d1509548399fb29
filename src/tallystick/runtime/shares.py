"""How much of what there is for all hosts one of them may have. A core."""

from __future__ import annotations


def share(room: int, places: int) -> int:
    """Returns how much of ``room`` a host may have that has ``places`` already: at most three quarters of what others
    leave, so that there is some for the next one."""
    return max(0, min(room, -(-(room + places) * 3 // 4) - places))
