"""How many lines of a log an event is worth that anybody can make happen without end: so many a minute.

A stranger's requests are lines of a kind and a host. Without a bound they fill the disk of the log at twice the rate of
what he sends, and nobody finds anything between them.
"""

from __future__ import annotations

MINUTE_S = 60.0
MAX_OF_HOST = 60  # of a kind, in a minute; events without a peer are of one host
MAX_OF_KIND = 600  # of all hosts: some have very many addresses
MAX_HOSTS = 1000  # that are remembered


class _Minute:
    __slots__ = ("ends", "lines")

    def __init__(self, ends: float) -> None:
        self.ends, self.lines = ends, 0


class Sparing:
    """Plain core; ``now`` is an argument, in seconds. The number of kinds is that of the registry."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], _Minute] = {}  # the one whose minute began last is last
        self._kinds: dict[str, _Minute] = {}
        self._unsaid: dict[str, int] = {}

    def unsaid(self, kind: str, peer: str, now: float) -> int | None:
        """Of an event: how many of its kind were left out since the last one that was not. None: it is left out."""
        key = kind, peer.rpartition(":")[0] or peer
        of_host, of_kind = self._hosts.get(key), self._kinds.get(kind)
        if of_kind is None or now >= of_kind.ends:
            of_kind = self._kinds[kind] = _Minute(now + MINUTE_S)
        if of_host is None or now >= of_host.ends:
            self._hosts.pop(key, None)
            of_host = self._hosts[key] = _Minute(now + MINUTE_S)
            if len(self._hosts) > MAX_HOSTS:
                del self._hosts[next(iter(self._hosts))]
        if of_host.lines >= MAX_OF_HOST or of_kind.lines >= MAX_OF_KIND:
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            return None
        of_host.lines += 1
        of_kind.lines += 1
        return self._unsaid.pop(kind, 0)
