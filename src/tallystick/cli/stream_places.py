"""Places in a stream as they are typed, in kcat's way.

::

    beginning       the first message that there is
    end             behind the last one
    -10             the tenth last one
    s@TIME          the first one that was published at this time or later
    7:41, 7:41:3    a position: ledger:entry, ledger:entry:index in a batch
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.cli import times
from tallystick.errors import UsageError

_LAST = re.compile(r"-\d{1,18}", re.ASCII)

END_FORMS = "s@TIME, or LEDGER:ENTRY (of a batch LEDGER:ENTRY:INDEX)"
FORMS = f"beginning, end, -N (the last N), {END_FORMS}"


@dataclass(frozen=True)
class Place:
    """A place; all fields None: the beginning. ``last``: so many messages before the end."""

    position: Position | None = None
    time_ms: int | None = None
    last: int | None = None

    @classmethod
    def parse(cls, written: str, option: str = "-o", forms: str = FORMS) -> Place:
        """Raises UsageError."""
        if written == "beginning":
            return cls()
        if written == "end":
            return cls(last=0)
        if _LAST.fullmatch(written):
            return cls(last=-int(written))
        if written.startswith("s@"):
            return cls(time_ms=times.parse(written[2:], f"{option} s@"))
        try:
            return cls(position=Position.parse(written))
        except UsageError:
            raise UsageError(f"{option} is {forms}", given=written) from None
