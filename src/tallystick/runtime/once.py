"""What is worth a line the first time, and none after that: a bounded memory of what was said."""

from __future__ import annotations

from collections.abc import Hashable

MAX_REMEMBERED = 1000


class Once:
    """Remembers the ``capacity`` things that were asked about last; what it forgot is new again."""

    def __init__(self, capacity: int = MAX_REMEMBERED) -> None:
        self._capacity = capacity
        self._keys: dict[Hashable, None] = {}  # the one asked about last stands last

    def __len__(self) -> int:
        return len(self._keys)

    def is_new(self, key: Hashable) -> bool:
        """Whether ``key`` was not asked about before, as far as this remembers."""
        is_known = key in self._keys
        self._keys.pop(key, None)
        self._keys[key] = None
        if len(self._keys) > self._capacity:
            del self._keys[next(iter(self._keys))]
        return not is_known
