"""The topics, or groups, of a master in pages, as slaves ask for them: entries by name, all of one version (H12).

An original goes on from the wanted entry only while the table has the version of the page before. Here a reader goes on
in the table as it was when it began, so that no row of changes, however long, keeps a slave from a whole table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tallystick.rocketmq.broker.config_table import host_of
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import DataVersion
from tallystick.runtime.clock import Clock

PAGE_ENTRIES = 2000  # the most of one page (splitMetadataSize)
MAX_VERSION_BYTES = 1024  # of a table's version in a request for a page
MOST_READERS, MOST_OF_HOST = 8, 2  # tables are kept for these, those that asked last
KEPT_S = 60.0  # since the last page


class VersionedTable(Protocol):
    """A table of topics, or of groups: a copy that does not change."""

    @property
    def version(self) -> DataVersion: ...


T = TypeVar("T", bound=VersionedTable)


@dataclass
class _TableReading(Generic[T]):
    """A table of which one reader has some pages."""

    table: T
    names: list[str]
    asked_at: float


@dataclass(frozen=True)
class ConfigPage(Generic[T]):
    """A page: the entries ``names`` of ``table``."""

    table: T
    names: list[str]


class ConfigPages(Generic[T]):
    """The pages of one table, of topics or of groups, for each reader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By reader (host:port), the one that asked last at the end.
        self._readings: OrderedDict[str, _TableReading[T]] = OrderedDict()

    def page(
        self, peer: str, table: T, entries: Mapping[str, object], version: str | None, start: int, most: int | None
    ) -> ConfigPage[T]:
        """Returns ``most`` entries from number ``start`` for ``peer`` (host:port).

        ``table`` and its ``entries`` are those of now; ``version``, as JSON, is that of the page before. Raises
        RemoteProtocolError if it is no version.
        """
        before = dialect.read_short(version.encode(), DataVersion, most_bytes=MAX_VERSION_BYTES) if version else None
        reading = self._readings.pop(peer, None)
        if start <= 0 or reading is None or reading.table.version != before:
            start = 0 if before != table.version else max(0, start)
            reading = _TableReading(table, sorted(entries), 0.0)
        size = PAGE_ENTRIES if most is None else max(0, min(PAGE_ENTRIES, most))
        if start + size < len(reading.names):
            self._keep(peer, reading)
        return ConfigPage(reading.table, reading.names[start : start + size])

    def _keep(self, peer: str, reading: _TableReading[T]) -> None:
        now, host = self._clock.now(), host_of(peer)
        reading.asked_at = now
        self._readings[peer] = reading
        of_host = [each for each in self._readings if host_of(each) == host]
        oldest = of_host[:-MOST_OF_HOST] + list(self._readings)[:-MOST_READERS]
        oldest += [each for each, other in self._readings.items() if other.asked_at + KEPT_S < now]
        for each in dict.fromkeys(oldest):
            del self._readings[each]
