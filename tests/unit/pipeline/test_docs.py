"""docs/spark.md names every option and column of each format, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystick.pipeline.columns import Columns
from tallystick.pipeline.ledger import options as ledger_options
from tallystick.pipeline.ledger import schema as ledger_schema
from tallystick.pipeline.stream import options as stream_options
from tallystick.pipeline.stream import schema as stream_schema
from tallystick.pipeline.stream import sink_options, sink_rows
from tallystick.pipeline.topic import options as topic_options
from tallystick.pipeline.topic import schema as topic_schema
from tallystick.pipeline.topic import sink_options as topic_sink_options
from tallystick.pipeline.topic import sink_rows as topic_sink_rows

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")


def table(section: str) -> list[list[str]]:
    """The cells of a section's rows, without backquotes."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in re.findall(r"^\| `.*$", text, re.M)]


@pytest.mark.parametrize(
    ("section", "options"),
    [
        ("Ledgers", ledger_options.OPTIONS),
        ("Streams", stream_options.OPTIONS),
        ("Writing streams", sink_options.SINK_OPTIONS),
        ("Topics", topic_options.OPTIONS),
        ("Writing topics", topic_sink_options.SINK_OPTIONS),
    ],
)
def test_options(section: str, options: dict[str, str]) -> None:
    assert [name for name, _ in table(f"{section}: options")] == list(options)


@pytest.mark.parametrize(
    ("section", "columns"),
    [
        ("Ledgers", ledger_schema.COLUMNS),
        ("Streams", stream_schema.COLUMNS),
        ("Topics", topic_schema.COLUMNS),
    ],
)
def test_columns(section: str, columns: Columns) -> None:
    assert {name: kind.lower() for name, kind, _ in table(f"{section}: columns")} == columns.types


@pytest.mark.parametrize(("section", "types"), [("streams", sink_rows.COLUMNS), ("topics", topic_sink_rows.TYPES)])
def test_columns_that_are_written(section: str, types: dict[str, tuple[str, ...]]) -> None:
    cells = table(f"Writing {section}: columns")
    shown = {name: tuple(kind.replace("`", "").split(" or ")) for name, kind, _ in cells}
    assert shown == types
