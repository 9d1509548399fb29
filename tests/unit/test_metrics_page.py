"""docs/metrics.md has every name that a scrape shows; docs/operations.md alerts on no other."""

from __future__ import annotations

import re
from pathlib import Path

from support.metrics_page import PAGE, page

OPERATIONS = PAGE.with_name("operations.md")
NAME = re.compile(r"\b(?:bookie|broker|nameserver|ledger|rocketmq|bookkeeper_server)_\w+")


def test_the_page_is_what_the_collectors_show() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/support/metrics_page.py"


def test_alerts_are_on_metrics_that_are_there() -> None:
    shown = set(NAME.findall(page()))
    alerts = OPERATIONS.read_text(encoding="utf-8").split("## What to alert on")[1].split("\n## ")[0]
    asked = set(NAME.findall(alerts))
    assert asked and asked <= shown, asked - shown


def test_every_page_names_only_metrics_that_are_there() -> None:
    shown = set(NAME.findall(page())) | {"bookie_id"}
    for path in sorted(Path(PAGE.parent).glob("*.md")):
        for name in re.findall(r"`((?:bookie|broker|nameserver|rocketmq)_\w+)[`{]", path.read_text(encoding="utf-8")):
            assert name in shown, (path.name, name)
