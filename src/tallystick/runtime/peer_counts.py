"""Who came to a server and by what it showed who it is, counted by host and identity, for an operator to look at."""

from __future__ import annotations

from collections import Counter, OrderedDict

MOST_PEERS = 1000  # that are told apart in the counts


class PeerCounts:
    """How often each identity of each host came in, of those that came last, as far as there is room: a bookie counts
    connections, a broker requests."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], Counter[str]] = OrderedDict()

    def count(self, host: str, identity: str, how: str) -> None:
        """Count one; ``how`` it came: "came", "old secret", "refused"."""
        key = host, identity
        counter = self._counts.get(key)
        if counter is None:
            counter = self._counts[key] = Counter()
        counter[how] += 1
        self._counts.move_to_end(key)
        if len(self._counts) > MOST_PEERS:
            self._counts.popitem(last=False)

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each host and identity."""
        return [{"host": host, "identity": identity, **counts} for (host, identity), counts in self._counts.items()]
