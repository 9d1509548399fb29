"""What the commands of this folder share: their options, and where the report goes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from report import replace_table

from tallystick.errors import UsageError

Results = dict[str, Any]  # a report before it is Markdown or JSON
INTERRUPTED = 128 + signal.SIGINT  # as the exit code


def run(
    about: str | None,
    quick_help: str,
    measure: Callable[..., Results],
    markdown: Callable[[Results], str],
    *,
    place: str,
    missing: str | None = None,
    options: Mapping[str, str] | None = None,
    type_of_options: Callable[[str], Any] = str,
) -> int:
    """The exit code. ``measure`` is told whether it is to be quick; ``missing`` says why it cannot run here.

    ``options``: further ones by name, with their help; what is given of them are named arguments of ``measure``, as
    ``type_of_options`` reads them. ``place``: where in a page of the docs the report belongs, as
    ``report.replace_table`` has it.
    """
    parser = argparse.ArgumentParser(description=(about or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help=quick_help)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="replace the table in this Markdown file")
    for name, help_text in (options or {}).items():
        parser.add_argument(f"--{name}", help=help_text, type=type_of_options)
    arguments = parser.parse_args()
    chosen = {name: value for name in options or {} if (value := getattr(arguments, name)) is not None}
    if missing:
        print(f"{parser.prog}: {refusal(missing)}", file=sys.stderr)
        return 1
    return report_of(
        parser, lambda: measure(arguments.quick, **chosen), markdown, arguments.json, arguments.docs, place
    )


def report_of(
    parser: argparse.ArgumentParser,
    measure: Callable[[], Results],
    markdown: Callable[[Results], str],
    rounds: Path | None,
    docs: Path | None = None,
    place: str = "",
) -> int:
    """Measure, print the report, and write it. Returns the exit code."""
    try:
        _require_place(rounds, docs, place)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the servers of a run would outlive it
    try:
        results = measure()
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted: nothing is written", file=sys.stderr)
        return INTERRUPTED
    except UsageError as error:  # Spark without Java, for instance
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    table = markdown(results)
    print(table, flush=True)
    try:
        _write(results, table, rounds, docs, place)
    except OSError as error:  # the disk has become full, for instance
        print(f"{parser.prog}: the report is above, but could not be written: {error}", file=sys.stderr)
        return 1
    return 1 if results.get("left_out") else 0


def _require_place(rounds: Path | None, docs: Path | None, place: str) -> None:
    """Raises OSError or ValueError for what could not be written: now, and not when all is measured."""
    if docs:
        replace_table(docs.read_text(), "", place)
        if not os.access(docs, os.W_OK):
            raise PermissionError(f"{docs} cannot be written")
    if rounds:
        rounds.parent.mkdir(parents=True, exist_ok=True)
        if rounds.is_dir():
            raise IsADirectoryError(f"{rounds} is a folder")
        part = _part(rounds)
        part.touch()
        part.unlink()


def _write(results: Results, table: str, rounds: Path | None, docs: Path | None, place: str) -> None:
    """A file is there as a whole, or as it was before."""
    texts = {rounds: as_json(results) + "\n"} if rounds else {}
    if docs:
        texts[docs] = replace_table(docs.read_text(), table, place)
    for file, text in texts.items():
        part = _part(file)
        try:
            part.write_text(text)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


def refusal(missing: str) -> str:
    return f"the original cannot run here: {missing}. It needs a JDK, 17 or newer, and Maven, which downloads it once"


def as_json(results: Results) -> str:
    return json.dumps(results, indent=1, default=asdict)


def _part(file: Path) -> Path:
    return file.with_name(f"{file.name}.part")
