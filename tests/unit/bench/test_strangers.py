"""The crowd ends with the bench."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest
import strangers


def test_a_crowd_is_gone_when_the_bench_is_stopped() -> None:
    """Else it would go on for ever, and the server that it keeps busy as well."""
    crowds: list[asyncio.subprocess.Process] = []

    async def stopped() -> None:
        async with strangers.process(sys.executable, "-c", "import signal; signal.pause()") as crowd:
            crowds.append(crowd)
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stopped())
    assert crowds[0].returncode == -signal.SIGKILL
