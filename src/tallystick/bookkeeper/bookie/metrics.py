"""A bookie's metrics: the original's names where it has them, so that its dashboards fill.

The hot paths add to plain numbers once per read or commit; a scrape turns them into metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystick.bookkeeper.bookie.storage import StorageStats
from tallystick.runtime.disk import Usage
from tallystick.runtime.health import process_registry

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric


_NO_NAME = re.compile("[^a-zA-Z0-9_]")  # in a name of Prometheus


@dataclass(slots=True)
class Counts:
    """Since the start; ``connections``, ``unsent_bytes``, ``unfinished_bytes``, and what waits or is ahead: now."""

    connections: int = 0
    connections_refused: int = 0
    unsent_bytes: int = 0
    unsent_closed: int = 0
    unfinished_bytes: int = 0
    unfinished_closed: int = 0
    adds: int = 0
    adds_failed: int = 0
    add_bytes: int = 0
    reads: int = 0
    reads_failed: int = 0
    read_bytes: int = 0
    batch_reads: int = 0
    batch_reads_failed: int = 0
    long_polls: int = 0
    long_polls_failed: int = 0
    long_polls_waiting: int = 0
    lac_writes: int = 0
    lac_writes_failed: int = 0
    lac_reads: int = 0
    lac_reads_failed: int = 0
    forces: int = 0
    forces_failed: int = 0
    space_reads: int = 0
    entry_lists: int = 0
    entry_lists_failed: int = 0
    fences: int = 0
    fences_refused: int = 0
    commits: int = 0
    commit_seconds: float = 0.0
    checkpoints: int = 0
    ledgers_deleted: int = 0
    looks: int = 0
    looks_refused: int = 0
    looks_failed: int = 0
    looks_amiss: int = 0
    adds_not_looked_at: int = 0
    collections: int = 0
    collections_failed: int = 0
    deletions_waiting: int = 0  # now
    ledgers_ahead: int = 0  # now
    surplus_rounds: int = 0
    surplus_ledgers: int = 0  # by the last round
    surplus_waiting: int = 0  # now
    surplus_dropped: int = 0
    collections_held: int = 0  # now: 1 while nobody has confirmed what restored metadata lacks
    filled_entries: int = 0
    filled_bytes: int = 0
    scrubs: int = 0
    scrub_bytes: int = 0
    scrub_damaged: int = 0
    scrub_mended: int = 0
    malformed: int = 0
    handshakes_failed: int = 0
    handshakes_refused: int = 0
    anonymous: int = 0


@dataclass(frozen=True)
class View:
    """What a scrape shows of the running bookie."""

    counts: Counts
    storage: Callable[[], StorageStats]
    writable: Callable[[], bool]
    metadata_reached: Callable[[], bool]
    staged_bytes: Callable[[], int]
    disks: Callable[[], Mapping[str, Usage]]  # by folder


class _BookieCollector:
    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        yield from _requests(self._view.counts)
        yield from _connections(self._view.counts)
        yield from _storage(self._view)
        yield from _collection(self._view)
        yield from _disks(self._view.disks())
        yield _original("bookie_ledger_num_dirs", "Ledger folders in use", self._view.storage().ledger_folders)


def _requests(counts: Counts) -> Iterator[Metric]:
    from prometheus_client.core import Metric, SummaryMetricFamily

    for name, text, total, failed in (
        ("ADD_ENTRY", "ADD requests answered", counts.adds, counts.adds_failed),
        ("READ_ENTRY", "READ requests answered", counts.reads, counts.reads_failed),
        ("BATCH_READ_ENTRY", "BATCH_READ requests answered", counts.batch_reads, counts.batch_reads_failed),
        ("READ_ENTRY_LONG_POLL_READ", "Long polls answered", counts.long_polls, counts.long_polls_failed),
        ("WRITE_LAC", "WRITE_LAC requests answered", counts.lac_writes, counts.lac_writes_failed),
        ("READ_LAC", "READ_LAC requests answered", counts.lac_reads, counts.lac_reads_failed),
        ("FORCE_LEDGER", "FORCE_LEDGER requests answered", counts.forces, counts.forces_failed),
        ("GET_BOOKIE_INFO", "GET_BOOKIE_INFO requests answered", counts.space_reads, 0),
        ("GET_LIST_OF_ENTRIES_OF_LEDGER", "Entry lists answered", counts.entry_lists, counts.entry_lists_failed),
    ):
        family = Metric(f"bookkeeper_server_{name}", text, "summary")
        family.add_sample(f"{family.name}_count", {"success": "true"}, total - failed)
        family.add_sample(f"{family.name}_count", {"success": "false"}, failed)
        yield family
    yield _original("bookie_WRITE_BYTES", "Bytes of ADD requests stored", counts.add_bytes)
    yield _original("bookie_READ_BYTES", "Bytes of entries sent", counts.read_bytes)
    name, text, total_ms = (
        "bookie_journal_JOURNAL_SYNC",
        "Commits to the journal, milliseconds",
        1000 * counts.commit_seconds,
    )
    yield SummaryMetricFamily(name, text, count_value=counts.commits, sum_value=total_ms)


def _connections(counts: Counts) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield GaugeMetricFamily("bookie_connections", "Open connections", counts.connections)
    yield GaugeMetricFamily("bookie_long_polls_waiting", "Long polls that wait", counts.long_polls_waiting)
    yield GaugeMetricFamily("bookie_unsent_bytes", "Bytes of answers that peers have not taken", counts.unsent_bytes)
    yield GaugeMetricFamily("bookie_unfinished_bytes", "Bytes of requests not answered yet", counts.unfinished_bytes)
    for name, text, count in (
        (
            "bookie_connections_refused_total",
            "Connections closed because too many are open",
            counts.connections_refused,
        ),
        ("bookie_unsent_closed_total", "Connections closed for answers not taken", counts.unsent_closed),
        ("bookie_unfinished_closed_total", "Connections closed for unfinished requests", counts.unfinished_closed),
        ("bookie_handshakes_failed_total", "Peers that did not show who they are", counts.handshakes_failed),
        (
            "bookie_handshakes_refused_total",
            "Connections closed because too many of one host have not shown who they are",
            counts.handshakes_refused,
        ),
        ("bookie_anonymous_total", "Connections that came in without a key", counts.anonymous),
    ):
        yield CounterMetricFamily(name, text, count)
    yield CounterMetricFamily("bookie_fences_total", "Requests that fenced a ledger", counts.fences)
    text = "Such requests refused as one ledger without an entry too many"
    yield CounterMetricFamily("bookie_fences_refused_total", text, counts.fences_refused)
    yield CounterMetricFamily("bookie_malformed_total", "Connections closed for a malformed frame", counts.malformed)


def _storage(view: View) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    stats, writable = view.storage(), view.writable()
    for name, text, value in (
        ("bookie_SERVER_STATUS", "1: takes writes, 0: read-only", int(writable)),
        ("bookie_metadata_reached", "1: connected to the metadata service", int(view.metadata_reached())),
        (
            "bookie_ledger_writable_dirs",
            "Ledger folders that take writes",
            int(writable) and stats.ledger_folders - stats.ledger_folders_full,
        ),
        ("bookie_ledger_folders_failed", "Ledger folders that are used no more", stats.ledger_folders_failed),
        ("bookie_ledgers_count", "Ledgers stored", stats.ledgers),
        ("bookie_entries_count", "Entries stored", stats.entries),
        ("bookie_write_cache_size", "Bytes not yet in an entry log", stats.memtable_bytes),
        ("bookie_staged_bytes", "Bytes waiting for a commit", view.staged_bytes()),
        ("bookie_journal_bytes", "Journal bytes since the last checkpoint", stats.journal_bytes),
        ("bookie_entry_logs", "Entry log files", stats.entry_logs),
        ("bookie_entry_log_bytes", "Bytes of entry logs", stats.entry_log_bytes),
        ("bookie_fences_without_entries", "Ledgers fenced and without an entry here", stats.fences_without_entries),
        ("bookie_ledgers_in_limbo", "Ledgers of which this bookie may lack entries", stats.ledgers_in_limbo),
        ("bookie_damaged_entry_logs", "Entry logs that could not be read when they were rewritten", stats.damaged_logs),
    ):
        yield GaugeMetricFamily(name, text, value)
    text = "Entries fetched from other replicas for ledgers in limbo"
    yield CounterMetricFamily("bookie_filled_entries_total", text, view.counts.filled_entries)
    yield CounterMetricFamily("bookie_filled_bytes_total", "Bytes of these", view.counts.filled_bytes)
    yield GaugeMetricFamily("bookie_entries_damaged", "Entries stored that cannot be read now", stats.entries_damaged)
    for name, text, count in (
        ("bookie_scrubs_total", "Rounds in which all that is stored was read", view.counts.scrubs),
        ("bookie_scrub_bytes_total", "Bytes read and compared by them", view.counts.scrub_bytes),
        ("bookie_scrub_damaged_total", "Entries that they found damaged", view.counts.scrub_damaged),
        ("bookie_mended_total", "Damaged entries made good from other replicas", view.counts.scrub_mended),
    ):
        yield CounterMetricFamily(name, text, count)
    yield CounterMetricFamily("bookie_checkpoints_total", "Checkpoints written", view.counts.checkpoints)


def _collection(view: View) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    stats = view.storage()
    for name, text, count in (
        ("bookie_collections_total", "Runs that compared the ledgers with the metadata", view.counts.collections),
        ("bookie_collections_failed_total", "Such runs that proved nothing", view.counts.collections_failed),
        ("bookie_looks_total", "Ledgers whose metadata was looked at before their first add", view.counts.looks),
        ("bookie_looks_refused_total", "Such ledgers that nobody may add to any more", view.counts.looks_refused),
        ("bookie_looks_failed_total", "Such ledgers whose metadata could not be read", view.counts.looks_failed),
        ("bookie_looks_amiss_total", "Such ledgers that are older than what is stored here", view.counts.looks_amiss),
        (
            "bookie_adds_not_looked_at_total",
            "Adds taken while no metadata could be read",
            view.counts.adds_not_looked_at,
        ),
        ("bookie_surplus_rounds_total", "Looks for copies that others have instead", view.counts.surplus_rounds),
        (
            "bookie_surplus_dropped_total",
            "Ledgers whose entries others have, dropped here",
            view.counts.surplus_dropped,
        ),
    ):
        yield CounterMetricFamily(name, text, count)
    text = "Ledgers gone from the metadata, too many to delete at once"
    yield GaugeMetricFamily("bookie_deletions_waiting", text, view.counts.deletions_waiting)
    text = "Ledgers with entries here that others have instead, by the last look"
    yield GaugeMetricFamily("bookie_surplus_ledgers", text, view.counts.surplus_ledgers)
    text = "Such ledgers that wait, as they are too many at once"
    yield GaugeMetricFamily("bookie_surplus_waiting", text, view.counts.surplus_waiting)
    text = "Ledgers newer than the metadata, which was restored from an older copy"
    yield GaugeMetricFamily("bookie_ledgers_ahead", text, view.counts.ledgers_ahead)
    text = "1 while nobody has confirmed what restored metadata lacks: nothing is deleted"
    yield GaugeMetricFamily("bookie_collections_held", text, view.counts.collections_held)
    for name, text, count in (
        ("bookie_DELETED_LEDGER_COUNT", "Ledgers deleted", view.counts.ledgers_deleted),
        ("bookie_RECLAIMED_DELETION_SPACE_BYTES", "Given back by logs without a ledger", stats.deletion_bytes),
        ("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", "Given back by rewriting logs", stats.compaction_bytes),
        ("bookie_MINOR_COMPACTION_COUNT", "New logs that took the place of others", stats.compactions),
        ("bookie_ACTIVE_LEDGER_COUNT", "Ledgers stored", stats.ledgers),
        ("bookie_ACTIVE_ENTRY_LOG_COUNT", "Entry log files", stats.entry_logs),
        ("bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", "Bytes of entry logs", stats.entry_log_bytes),
    ):
        yield _original(name, text, count)


def _disks(usages: Mapping[str, Usage]) -> Iterator[Metric]:
    """Make the metrics of the folders' file systems; the original's name has the folder in it, and a percentage."""
    from prometheus_client.core import GaugeMetricFamily

    total = GaugeMetricFamily("bookie_disk_bytes", "Size of the folder's file system", labels=["folder"])
    free = GaugeMetricFamily("bookie_disk_free_bytes", "Bytes that the bookie may still use of it", labels=["folder"])
    for folder, usage in usages.items():
        total.add_metric([folder], usage.total)
        free.add_metric([folder], usage.free)
        share = 100 * (usage.total - usage.free) / usage.total if usage.total else 0.0
        yield _original(f"bookie_ledger_dir_{_NO_NAME.sub('_', folder)}_usage", "Per cent of its disk in use", share)
    yield total
    yield free


def _original(name: str, text: str, value: float) -> Metric:
    """Make a metric with the original's name, which does not end in _total where it counts."""
    from prometheus_client.core import Metric

    family = Metric(name, text, "unknown")
    family.add_sample(name, {}, value)
    return family


def registry(view: View) -> CollectorRegistry:
    """Return everything that a scrape of this bookie shows, its process included."""
    return process_registry(_BookieCollector(view))
