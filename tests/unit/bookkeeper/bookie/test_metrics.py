"""The names and numbers of a scrape."""

from __future__ import annotations

import platform
from importlib.metadata import version

from prometheus_client import generate_latest

from tallystick.bookkeeper.bookie.metrics import Counts, View, registry
from tallystick.bookkeeper.bookie.storage import StorageStats
from tallystick.runtime.disk import Usage


def test_a_scrape_has_the_originals_names_and_ours() -> None:
    counts = Counts(
        adds=10, adds_failed=3, add_bytes=77, commits=2, commit_seconds=0.004, malformed=5, connections_refused=6
    )
    stats = StorageStats(
        ledgers=4,
        entries=9,
        memtable_bytes=100,
        journal_bytes=200,
        entry_logs=1,
        entry_log_bytes=300,
        damaged_logs=2,
        deletion_bytes=70,
        compaction_bytes=30,
        compactions=1,
    )
    text = generate_latest(
        registry(
            View(counts, lambda: stats, lambda: False, lambda: True, lambda: 12, lambda: {"/srv/a-1": Usage(200, 50)})
        )
    ).decode()
    for line in (
        'bookkeeper_server_ADD_ENTRY_count{success="true"} 7.0',
        'bookkeeper_server_ADD_ENTRY_count{success="false"} 3.0',
        "bookie_WRITE_BYTES 77.0",
        "bookie_journal_JOURNAL_SYNC_count 2.0",
        "bookie_journal_JOURNAL_SYNC_sum 4.0",
        "bookie_SERVER_STATUS 0.0",
        "bookie_metadata_reached 1.0",
        "bookie_ledgers_count 4.0",
        "bookie_entries_count 9.0",
        "bookie_write_cache_size 100.0",
        "bookie_staged_bytes 12.0",
        "bookie_malformed_total 5.0",
        "bookie_connections_refused_total 6.0",
        "bookie_unfinished_bytes 0.0",
        "bookie_unsent_bytes 0.0",
        "bookie_damaged_entry_logs 2.0",
        "bookie_RECLAIMED_DELETION_SPACE_BYTES 70.0",
        "bookie_RECLAIMED_COMPACTION_SPACE_BYTES 30.0",
        "bookie_MINOR_COMPACTION_COUNT 1.0",
        "bookie_ACTIVE_ENTRY_LOG_COUNT 1.0",
        "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES 300.0",
        "bookie_ledger_dir__srv_a_1_usage 75.0",
        'bookie_disk_bytes{folder="/srv/a-1"} 200.0',
        'bookie_disk_free_bytes{folder="/srv/a-1"} 50.0',
        f'tallystick_build_info{{python="{platform.python_version()}",version="{version("tallystick")}"}} 1.0',
    ):
        assert line in text.splitlines()
    assert "process_cpu_seconds_total" in text
