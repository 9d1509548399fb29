"""A signed request of ours counts once: its signature covers its kind, the time, and a number that does not come again.

::

    tallyOnce    extField: connection 16 hex digits . wall clock, ms . number . code of the request

The original's signature covers none of it, so that who can read a request can send it again, or its fields with another
code. Where the field is there a server of ours looks at it, and it cannot be taken out as it is signed. Numbers of a
connection rise; of each the newest is remembered with which of the WIDTH before it came. What is forgotten to make room
is of the user who has most connections, and older than a time from which on nothing of his counts of a connection that
is not remembered. A restart forgets all: what was sent up to SKEW_MS before counts again then.
"""

from __future__ import annotations

import re
from collections import OrderedDict

SKEW_MS = 600_000  # by which clocks may differ
WIDTH = 1024  # numbers behind the newest that may still come
MOST_CONNECTIONS = 10_000  # that are remembered
_FORM = re.compile(r"([0-9a-f]{16})\.([0-9]{1,15})\.([0-9]{1,15})\.([0-9]{1,5})", re.ASCII)
_MASK = (1 << WIDTH) - 1


class Numbered:
    """Numbers the requests of one connection of a client."""

    def __init__(self, connection: int) -> None:
        """``connection`` has 64 random bits."""
        self._prefix, self._number = f"{connection:016x}", 0

    def next(self, code: int, now_ms: int) -> str:
        """Returns the field of the next request."""
        self._number += 1
        return f"{self._prefix}.{now_ms}.{self._number}.{code}"


class _Window:
    def __init__(self) -> None:
        self.newest_ms = self._newest = self._seen = 0  # bit i: the number ``newest`` - i came

    def takes(self, number: int, sent_ms: int) -> bool:
        """Note a number. Returns False if it came before, or is too old to know."""
        ahead = number - self._newest
        if ahead > 0:
            self._seen = ((self._seen << ahead) & _MASK if ahead < WIDTH else 0) | 1
            self._newest, self.newest_ms = number, max(self.newest_ms, sent_ms)
            return True
        bit = 1 << -ahead if -ahead < WIDTH else 0
        if not bit or self._seen & bit:
            return False
        self._seen |= bit
        return True


class _Signer:
    def __init__(self) -> None:
        self.windows: OrderedDict[str, _Window] = OrderedDict()  # by connection
        self.floor_ms = 0  # nothing that old counts of a connection that is not remembered


class Replays:
    """What a server remembers of signed requests; only those whose signature is right are shown to it."""

    def __init__(self) -> None:
        self._signers: dict[str, _Signer] = {}  # by user
        self._connections = 0  # that are remembered

    def refusal(self, user: str, field: str, code: int, now_ms: int) -> str | None:
        """Returns why a request of this user with this field does not count; None if it does, and from then on not
        again."""
        match = _FORM.fullmatch(field)
        if match is None:
            return "tallyOnce is not of its form"
        connection, sent_ms, number = match[1], int(match[2]), int(match[3])
        if int(match[4]) != code:
            return "the signature is of another kind of request"
        if abs(sent_ms - now_ms) > SKEW_MS:
            return f"the clocks of client and server differ by {(sent_ms - now_ms) // 1000} s"
        signer = self._signers.get(user) or self._signers.setdefault(user, _Signer())
        window = signer.windows.get(connection)
        if window is None:
            if sent_ms <= signer.floor_ms:
                return "this request may have come before"
            if self._connections >= MOST_CONNECTIONS:
                self._forget_one()
            window = signer.windows[connection] = _Window()
            self._connections += 1
        signer.windows.move_to_end(connection)
        return None if window.takes(number, sent_ms) else "this request came before"

    def _forget_one(self) -> None:
        """Forget a connection of the user who has most: else one of many would keep out those of others."""
        crowded = max(self._signers.values(), key=lambda signer: len(signer.windows))
        _, oldest = crowded.windows.popitem(last=False)
        crowded.floor_ms = max(crowded.floor_ms, oldest.newest_ms)
        self._connections -= 1
