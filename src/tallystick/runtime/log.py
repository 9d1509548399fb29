"""Events and faults in Python's ``logging``, which a host configures as it likes; servers write it to standard error.

Loggers are ``tallystick`` (clients) and ``tallystick.bookie``, ``.broker``, ``.nameserver``. A record's message is the
event as text, its attribute ``event`` the ``Event``. As in every library nothing is printed unless somebody asks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from tallystick.errors import UsageError
from tallystick.runtime.event_kinds import level_of
from tallystick.runtime.events import Event
from tallystick.runtime.sparing import Sparing

if TYPE_CHECKING:
    from structlog.typing import EventDict

ROOT = "tallystick"
MAX_WAITING = 10_000  # lines, a few megabytes
CLOSE_S = 1.0
LEFT_OUT_S = 10.0  # at most, behind the end of a minute, until it is told how many lines were left out in it
LEVELS = ("debug", "info", "warning", "error")

logging.getLogger(ROOT).addHandler(logging.NullHandler())


@dataclass(frozen=True)
class LogSettings:
    """What a server writes: lines of text or of JSON, of this level and above."""

    style: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> LogSettings:
        """``TALLY_LOG_FORMAT`` and ``TALLY_LOG_LEVEL``. Raises UsageError, which names the variable."""
        settings = cls()
        style = environment.get("TALLY_LOG_FORMAT") or settings.style
        level = (environment.get("TALLY_LOG_LEVEL") or settings.level).lower()
        if style not in ("text", "json"):
            raise UsageError("TALLY_LOG_FORMAT is text or json", given=style)
        if level not in LEVELS:
            raise UsageError(f"TALLY_LOG_LEVEL is one of {', '.join(LEVELS)}", given=level)
        return cls(style, level)  # type: ignore[arg-type]  # both were compared with what there is


def log_listener(part: str = "") -> Callable[[Event], None]:
    """Writes events to the logger of this part of the house, each at the level of its kind."""
    logger = logging.getLogger(f"{ROOT}.{part}" if part else ROOT)

    def listen(event: Event) -> None:
        if logger.isEnabledFor(level_of(event.kind)):
            logger.handle(_record(logger, event))

    return listen


def _record(logger: logging.Logger, event: Event) -> logging.LogRecord:
    return logger.makeRecord(logger.name, level_of(event.kind), "", 0, "%s", (event,), None, extra={"event": event})


class LogOutput:
    """All that is logged under ``tallystick``, as lines with their time (UTC), by a thread: ``close`` it.

    Whoever reads the lines may stop doing so. No event waits for that: lines beyond ``MAX_WAITING`` are lost, and
    counted. Of a kind and a host there are so many a minute (``Sparing``); how many were left out is told behind it.
    """

    def __init__(self, write: Callable[[bytes], object], settings: LogSettings, *, colors: bool = False) -> None:
        """``write`` may block, and is called on the thread alone."""
        self._write = write
        self._formatter = _Rendered(settings.style, colors)
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(MAX_WAITING)
        self._sparing, self._one = Sparing(), threading.Lock()
        self._lost_count = 0
        self._ending = False
        self._handler = _Handing(self._take)
        logger = logging.getLogger(ROOT)
        logger.handlers = [self._handler]
        logger.setLevel(settings.level.upper())
        logger.propagate = False
        self._thread = threading.Thread(target=self._run, name="tallystick-log", daemon=True)
        self._thread.start()

    def close(self, within_s: float = CLOSE_S) -> None:
        """Write what waits, as far as somebody reads it; take no more."""
        logging.getLogger(ROOT).removeHandler(self._handler)
        self._ending = True
        with contextlib.suppress(queue.Full):  # then the thread sees for itself when nothing waits any more
            self._records.put_nowait(None)
        self._thread.join(within_s)

    def _take(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if isinstance(event, Event):
            with self._one:
                is_worth = self._sparing.is_worth(event.kind, str(event.fields.get("peer", "")), time.monotonic())
            if not is_worth:
                return
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self._lost_count += 1

    def _run(self) -> None:
        tell_at = 0.0
        while not (self._ending and self._records.empty()):
            record = None
            with contextlib.suppress(queue.Empty):
                record = self._records.get(timeout=LEFT_OUT_S)
            if record is not None:
                self._line(record)
            if self._lost_count and self._records.qsize() < MAX_WAITING // 2:
                lost_count, self._lost_count = self._lost_count, 0
                self._say(Event("log lines lost", {"count": lost_count, "reason": "nobody read them in time"}))
            if (now := time.monotonic()) >= tell_at:
                tell_at = now + LEFT_OUT_S
                self._tell_left_out(now)
        self._tell_left_out(None)

    def _tell_left_out(self, now: float | None) -> None:
        with self._one:
            left_out = self._sparing.left_out(now)
        for kind, count in left_out.items():
            self._say(Event("log lines left out", {"of": kind, "count": count}))

    def _say(self, event: Event) -> None:
        self._line(_record(logging.getLogger(ROOT), event))

    def _line(self, record: logging.LogRecord) -> None:
        try:
            self._write(f"{self._formatter.format(record)}\n".encode(errors="backslashreplace"))
        except Exception:  # the reader is gone, or a field cannot be shown: the lines after this one are tried
            self._lost_count += 1


class _Handing(logging.Handler):
    """Hands records to another thread as they are."""

    def __init__(self, take: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record)


def log_to_stderr(environment: Mapping[str, str]) -> LogOutput:
    """As ``TALLY_LOG_FORMAT`` and ``TALLY_LOG_LEVEL`` say; ``NO_COLOR`` is heard. Raises UsageError."""
    colors = sys.stderr.isatty() and not environment.get("NO_COLOR")
    return LogOutput(_to_stderr, LogSettings.of(environment), colors=colors)


def _to_stderr(line: bytes) -> None:
    """Past Python's buffer, whose lock a writer that blocks would hold when the process ends."""
    while line:
        line = line[os.write(2, line) :]


def writable(stream: TextIO, within_s: float = CLOSE_S) -> bool:
    """Whether some lines can be written to it now without waiting for who reads them."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # none: it is in memory
        return True
    return bool(select.select([], [descriptor], [], within_s)[1])


class _Rendered(logging.Formatter):
    """By structlog, which is imported at the first line: most of a server's start would be that."""

    def __init__(self, style: str, colors: bool) -> None:
        super().__init__()
        self._form = style
        self._colors = colors
        self._inner: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._inner is None:
            self._inner = self._make_formatter()
        return self._inner.format(record)

    def _make_formatter(self) -> logging.Formatter:
        import structlog

        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        renderer: list[Any] = (
            [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
            if self._form == "json"
            else [structlog.dev.ConsoleRenderer(colors=self._colors)]
        )
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, _fields, stamp],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )


def _fields(logger: Any, method: str, event_dict: EventDict) -> EventDict:
    """An event's kind and fields instead of its text."""
    event = getattr(event_dict["_record"], "event", None)
    if isinstance(event, Event):
        event_dict.update(event.fields)
        event_dict["event"] = event.kind
    return event_dict
