"""docs/tables.md names every argument and every setting, and no other."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import tallystick.spark
from tallystick.pipeline.tables.ingest import ingest
from tallystick.pipeline.tables.settings import IngestSettings

PAGE = (Path(__file__).parents[4] / "docs" / "tables.md").read_text(encoding="utf-8")


def names(section: str) -> list[str]:
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", text, re.M)


def test_arguments() -> None:
    wanted = [name for name in inspect.signature(tallystick.spark.ingest).parameters if name != "spark"]
    assert names("Arguments") == wanted
    assert [name for name in inspect.signature(ingest).parameters if name != "spark"] == wanted


def test_settings() -> None:
    assert names("Settings") == [field.name for field in dataclasses.fields(IngestSettings)]
