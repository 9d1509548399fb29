"""The names of the files of a table that we write: each says whose it is. Pure.

::

    tally-<application>-<query>-<batch>-<chance>.parquet

By its name a file that no commit lists is known as the rest of a dead attempt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallystick.pipeline.tables.record import TableRecord

_NAME = re.compile(r"tally-(.+)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(\d{10,})-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True)
class FileName:
    """Which batch a file was written for."""

    application: str
    query: str
    batch: int

    @property
    def prefix(self) -> str:
        """What chance and the suffix follow."""
        return f"tally-{self.application}-{self.query}-{self.batch:010d}-"

    @classmethod
    def parse(cls, name: str) -> FileName | None:
        """Returns None for a name that is none of ours."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(match[1], match[2], int(match[3]))

    def is_over(self, application: str, record: TableRecord) -> bool:
        """Whether the application has gone past this batch: no commit can list the file that does not list it now."""
        return self.application == application and (self.query != record.query or self.batch <= record.batch)
