"""What a query does that somebody should know of, and that fails nothing: lines on standard error.

That of a planner process is the driver's, that of a task its executor's. Spark has no other place for it.
"""

from __future__ import annotations

import sys


def note(format_name: str, text: object) -> None:
    print(f"{format_name}: {text}", file=sys.stderr, flush=True)
