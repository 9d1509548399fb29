"""What the commands of this folder share: their options, and where the report goes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from report import replace_table

Results = dict[str, Any]  # a report before it is Markdown or JSON


def run(
    about: str | None,
    quick_help: str,
    measure: Callable[..., Results],
    markdown: Callable[[Results], str],
    *,
    place: str,
    missing: str | None = None,
    options: Mapping[str, str] | None = None,
) -> int:
    """The exit code. ``measure`` is told whether it is to be quick; ``missing`` says why it cannot run here.

    ``options``: further ones by name, with their help; what is given of them are named arguments of ``measure``.
    ``place``: where in a page of the docs the report belongs (``report.replace_table``).
    """
    parser = argparse.ArgumentParser(description=(about or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help=quick_help)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="replace the table in this Markdown file")
    for name, help_text in (options or {}).items():
        parser.add_argument(f"--{name}", help=help_text)
    arguments = parser.parse_args()
    chosen = {name: value for name in options or {} if (value := getattr(arguments, name)) is not None}
    docs: Path | None = arguments.docs
    if missing:
        print(f"{parser.prog}: the original cannot run here: {missing}", file=sys.stderr)
        return 1
    if docs:
        replace_table(docs.read_text(), "", place)  # a page without place for the table is an error now
    results = measure(arguments.quick, **chosen)
    table = markdown(results)
    print(table)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(results, indent=1, default=asdict) + "\n")
    if docs:
        docs.write_text(replace_table(docs.read_text(), table, place))
    return 1 if results.get("left_out") else 0
