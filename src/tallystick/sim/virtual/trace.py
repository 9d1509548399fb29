"""What happened in a run, as lines; their hash tells two runs apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Trace:
    """The lines of a run, and their hash. ``now`` gives the time of a line, in seconds."""

    def __init__(self, now: Callable[[], float], *, keep: bool = False) -> None:
        self._now, self._hash = now, hashlib.blake2b(digest_size=8)
        self.lines: list[str] | None = [] if keep else None
        self._is_over = False

    def note(self, *words: object) -> None:
        if self._is_over:
            return
        line = f"{self._now():12.6f} " + " ".join(map(str, words))
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def end(self) -> None:
        """Note nothing more: what follows clears the run away, and is no part of it."""
        self._is_over = True

    @property
    def fingerprint(self) -> str:
        """Returns a text that is equal for equal seeds, in every process."""
        return self._hash.hexdigest()
