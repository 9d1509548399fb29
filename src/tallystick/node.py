"""From settings to running parts: a bookie in the real world, and the process around it.

Exit codes are the original's (``ExitCode``): 0 stopped on request, 1 bad configuration, 2 the bookie may not or cannot
start, 4 its registration failed or was lost, 5 its disk failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from tallystick import settings as files
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.errors import InvalidCookie, MetadataError, StorageError, TallyError, UsageError
from tallystick.runtime import open_files
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Event, Events
from tallystick.runtime.memory import keep_freed_memory
from tallystick.runtime.network import TcpNetwork
from tallystick.runtime.outside import Outside

_EXIT_CODES: tuple[tuple[type[TallyError], int], ...] = (
    (UsageError, 1),
    (InvalidCookie, 2),
    (MetadataError, 4),
    (StorageError, 5),
    (TallyError, 2),
)


def real_world(*listeners: Callable[[Event], None]) -> Outside:
    """This machine; the listeners hear the events."""
    return Outside(TcpNetwork(), OsDisk(), SystemClock(), Events(*listeners), open_files.raise_limit())


async def run_bookie(settings: BookieSettings, outside: Outside) -> Bookie:
    """Start a bookie; when this returns it is registered and answers. ``stop()`` it later."""
    bookie = await start_bookie(settings, outside)
    # What lives now lives on: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    return bookie


def bookie_main(config: str | None, overrides: Mapping[str, str], out: TextIO | None = None) -> int:
    """Run a bookie until SIGTERM or SIGINT; the exit code. ``ready …`` on ``out`` (stdout), events on stderr."""
    try:
        loaded = files.load(config, overrides)
        _log_to_stderr()
        if loaded.ignored:
            print(f"warning: these settings change nothing here: {', '.join(loaded.ignored)}", file=sys.stderr)
        keep_freed_memory()
        with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
            return runner.run(_serve(loaded.bookie, out or sys.stdout))
    except TallyError as error:
        return _explain(error)


async def _serve(settings: BookieSettings, out: TextIO) -> int:
    from tallystick.runtime.events import log_listener

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    bookie = await run_bookie(settings, real_world(log_listener("bookie")))
    http = f" http={_shown(bookie.http_address)}" if bookie.http_address else ""
    print(f"ready bookie={bookie.id} address={_shown(bookie.address)}{http}", file=out, flush=True)
    asked = loop.create_task(stopping.wait())
    await asyncio.wait((asked, bookie.failure), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    await bookie.stop()
    return _explain(bookie.failure.result()) if bookie.failure.done() else 0


def _shown(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _explain(error: Exception) -> int:
    """Say why the bookie ends; the exit code."""
    print(f"error: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 2)


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None


def _log_to_stderr() -> None:
    """Standard output carries the ready line alone."""
    import structlog

    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
