"""What a server says that it freed of peers that ended."""

from __future__ import annotations


class Freed:
    """In place of ``FreedMemory``."""

    def __init__(self) -> None:
        self.sizes, self.closed = list[int](), False

    def freed(self, size: int) -> None:
        self.sizes.append(size)

    def close(self) -> None:
        self.closed = True
