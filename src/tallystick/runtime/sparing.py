"""How many lines of a log an event is worth that anybody can make happen without end: so many a minute.

A stranger's requests are lines of a kind and a host. Without a bound they fill the disk of the log at twice the rate of
what he sends, and nobody finds anything between them. What is left out is counted, and told when the minute is over.

Of a kind's lines in a minute the first are anybody's. The next are a few for each host, so that some hosts leave the
others theirs, and the last are for hosts that had a line of any kind in another minute before: very many addresses
that were never heard of take none of these, and there is an end to all.
"""

from __future__ import annotations

MINUTE_S = 60.0
MAX_OF_HOST = 60  # of a kind, in a minute
MAX_OF_KIND = 600  # of all hosts: behind these each has ``ALWAYS``
ALWAYS = 3  # of a host, however many lines a few others have: an operator's own orders are among them
MAX_OF_UNKNOWN = 1300  # of all hosts: behind these hosts are left out that had no line before the minute
MAX_OF_ALL = 2000  # of all hosts
MAX_OF_NOBODY = 2000  # of a kind without a peer: what a server does by itself, a line for each of very many queues
MAX_HOSTS = 1000  # that are remembered, and kinds of them


class _Minute:
    __slots__ = ("ends", "left_out", "lines")

    def __init__(self, ends: float) -> None:
        self.ends, self.lines, self.left_out = ends, 0, 0


class Sparing:
    """Plain core; ``now`` is an argument, in seconds. The number of kinds is that of the registry."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], _Minute] = {}  # the one whose minute began last is last
        self._kinds: dict[str, _Minute] = {}
        self._first_line_at: dict[str, float] = {}  # when a host had its first line; the one that had one last is last
        self._left_out_counts: dict[str, int] = {}  # left out in minutes that are over, and not told yet

    def is_worth(self, kind: str, peer: str, now: float) -> bool:
        """Whether an event of this kind is written; it is counted either way."""
        of_kind = self._of_kind(kind, now)
        if not peer:
            is_worth = of_kind.lines < MAX_OF_NOBODY
        else:
            host = peer.rpartition(":")[0] or peer
            of_host = self._of_host(kind, host, now)
            is_known = self._first_line_at.get(host, now) < of_kind.ends - MINUTE_S
            most = MAX_OF_ALL if is_known else MAX_OF_UNKNOWN
            is_worth = of_kind.lines < most and of_host.lines < (MAX_OF_HOST if of_kind.lines < MAX_OF_KIND else ALWAYS)
            of_host.lines += is_worth
            if is_worth:
                self._has_line(host, now)
        of_kind.lines += is_worth
        of_kind.left_out += not is_worth
        return is_worth

    def left_out(self, now: float | None) -> dict[str, int]:
        """How many of each kind were left out in minutes that are over and were not told of; with None: until now."""
        for kind, minute in self._kinds.items():
            if now is None or now >= minute.ends:
                self._end(kind, minute)
        left_out_counts, self._left_out_counts = self._left_out_counts, {}
        return left_out_counts

    def _of_kind(self, kind: str, now: float) -> _Minute:
        minute = self._kinds.get(kind)
        if minute is None or now >= minute.ends:
            if minute is not None:
                self._end(kind, minute)
            minute = self._kinds[kind] = _Minute(now + MINUTE_S)
        return minute

    def _of_host(self, kind: str, host: str, now: float) -> _Minute:
        minute = self._hosts.get((kind, host))
        if minute is None or now >= minute.ends:
            self._hosts.pop((kind, host), None)
            minute = self._hosts[kind, host] = _Minute(now + MINUTE_S)
            if len(self._hosts) > MAX_HOSTS:
                del self._hosts[next(iter(self._hosts))]
        return minute

    def _has_line(self, host: str, now: float) -> None:
        self._first_line_at[host] = self._first_line_at.pop(host, now)
        if len(self._first_line_at) > MAX_HOSTS:
            del self._first_line_at[next(iter(self._first_line_at))]

    def _end(self, kind: str, minute: _Minute) -> None:
        if minute.left_out:
            self._left_out_counts[kind] = self._left_out_counts.get(kind, 0) + minute.left_out
            minute.left_out = 0
