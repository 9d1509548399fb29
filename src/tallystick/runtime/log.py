"""Events and faults in Python's ``logging``, which a host configures as it likes; servers write it to standard error.

Loggers are ``tallystick`` (clients) and ``tallystick.bookie``, ``.broker``, ``.nameserver``. A record's message is the
event as text, its attribute ``event`` the ``Event``. As in every library nothing is printed unless somebody asks.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from tallystick.errors import UsageError
from tallystick.runtime.event_kinds import level_of
from tallystick.runtime.events import Event

if TYPE_CHECKING:
    from structlog.typing import EventDict

ROOT = "tallystick"
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
        logger.log(level_of(event.kind), "%s", event, extra={"event": event})

    return listen


def log_to(stream: TextIO, settings: LogSettings, *, colors: bool) -> None:
    """All of the process that is logged under ``tallystick``, as lines with their time (UTC)."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Rendered(settings.style, colors))
    logger = logging.getLogger(ROOT)
    logger.handlers = [handler]
    logger.setLevel(settings.level.upper())
    logger.propagate = False


def log_to_stderr(environment: Mapping[str, str]) -> None:
    """As ``TALLY_LOG_FORMAT`` and ``TALLY_LOG_LEVEL`` say; ``NO_COLOR`` is heard. Raises UsageError."""
    colors = sys.stderr.isatty() and not environment.get("NO_COLOR")
    log_to(sys.stderr, LogSettings.of(environment), colors=colors)


class _Rendered(logging.Formatter):
    """By structlog, which is imported at the first line: most of a server's start would be that."""

    def __init__(self, style: str, colors: bool) -> None:
        super().__init__()
        self._form = style
        self._colors = colors
        self._inner: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._inner is None:
            self._inner = self._made()
        return self._inner.format(record)

    def _made(self) -> logging.Formatter:
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
