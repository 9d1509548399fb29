from __future__ import annotations

import re

import pytest

from support.admin_desk import Desk
from support.copied_offsets import take_over
from tallystick.rocketmq.broker import offset_pages
from tallystick.rocketmq.broker.offset_pages import OFFSETS
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import DataVersion, RequestCode

PAGE = RequestCode.GET_TABLE_PAGE


def test_a_page_of_another_snapshot_begins_the_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_pages, "PAGE_KEYS", 2)
    desk = Desk()
    for number in range(5):
        desk.tables.offsets.commit("T", f"g{number}", 0, number)
    first = desk.ask(PAGE, {"table": OFFSETS})
    assert first.fields["next"] == "2"
    follow = {"table": OFFSETS, "start": 2, "snapshot": first.fields["snapshot"]}
    assert b"g2" in bytes(desk.ask(PAGE, follow).body)
    last = desk.ask(PAGE, {"table": OFFSETS, "start": 10**12, "snapshot": first.fields["snapshot"]})
    assert "next" not in last.fields
    take_over(desk.tables.offsets, OffsetTable(DataVersion(0, 5, 5), {"T@g9": {0: 9}}))
    copied = desk.ask(PAGE, follow)
    assert copied.fields["snapshot"] != first.fields["snapshot"] and b"g9" in bytes(copied.body)


@pytest.mark.rule("H12")
@pytest.mark.parametrize("kind", ["committed", "pulled"])
def test_h12_who_reads_pages_while_entries_go_misses_none_and_comes_to_the_end(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """60 groups that were made and deleted a second kept a slave from all its master's consumer offsets."""
    monkeypatch.setattr(offset_pages, "PAGE_KEYS", 4)
    desk = Desk()
    offsets = desk.tables.offsets
    put = offsets.commit if kind == "committed" else offsets.set_pull_offset
    for number in range(20):
        put("T", f"g{number}", 0, number)
    fields: dict[str, object] = {"table": OFFSETS}
    seen, gone = set[str](), set[str]()
    for round_ in range(20):
        page = desk.ask(PAGE, fields)
        seen |= set(re.findall("T@(g[0-9]+)", bytes(page.body).decode()))
        if "next" not in page.fields:
            break
        fields |= {"start": page.fields["next"], "snapshot": page.fields["snapshot"]}
        for group in (f"g{round_}", f"g{19 - round_}"):  # before the place that is read next, and behind it
            list(offsets.forgetting_group(group))
            gone.add(group)
        put("T", f"new{round_}", 0, 1)
    else:
        pytest.fail("the pages have no end")
    assert seen >= {f"g{number}" for number in range(20)} - gone


def test_a_page_ends_with_the_group_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_pages, "PAGE_OFFSETS", 10)
    desk = Desk()
    for number in range(30):
        desk.tables.offsets.commit("T", f"g{number // 6}", number % 6, number)
    assert desk.ask(PAGE, {"table": OFFSETS}).fields["next"] == "2"


def test_a_table_without_pages_is_answered_as_by_an_original() -> None:
    assert Desk().ask(PAGE, {"table": "songs"}).code == 3
    assert Desk().ask(PAGE, {"table": OFFSETS, "tallyInstance": "another"}).code == 1
