"""Which of the CommitLog's files are deleted: by age at a set hour, sooner when the disk fills, never the last one
(§2.9).

A file's age is that of its newest message. Sources: ``DefaultMessageStore.CleanCommitLogService``,
``UtilAll.getDiskPartitionSpaceUsedPercent``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.disk import Usage

MAX_FILES = 10  # deleted in one run
HOUR_MS = 3_600_000


def used_percent(usage: Usage) -> float:
    """Returns the share of the space that this process could use which is in use, as ``df`` shows it; 0 for a file
    system without size. Reserved blocks count on neither side: nobody fills them, and no deleted file frees them."""
    usable = usage.used + usage.free
    return 100 * usage.used / usable if usable else 0


def files_to_drop(
    newest_ms: Sequence[int], used_percent: float, now_ms: int, settings: StoreSettings, *, any_hour: bool = False
) -> int:
    """Returns how many of the oldest files to delete. ``newest_ms`` has the newest store time of each file but the
    last. ``any_hour``: an operator wants expired files deleted now."""
    if used_percent > settings.disk_clean_ratio:
        return min(len(newest_ms), MAX_FILES)
    if (
        not any_hour
        and used_percent <= settings.disk_delete_ratio
        and time.localtime(now_ms / 1000).tm_hour != settings.delete_hour
    ):
        return 0
    deadline = now_ms - settings.file_reserved_hours * HOUR_MS
    expired_count = 0
    while expired_count < min(len(newest_ms), MAX_FILES) and newest_ms[expired_count] < deadline:
        expired_count += 1
    return expired_count
