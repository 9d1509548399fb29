from __future__ import annotations

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
    list(desk.tables.offsets.forgetting_group("g0"))
    again = desk.ask(PAGE, follow)
    assert again.fields["snapshot"] != first.fields["snapshot"]
    assert b"g1" in bytes(again.body)
    last = desk.ask(PAGE, {"table": OFFSETS, "start": 10**12, "snapshot": again.fields["snapshot"]})
    assert "next" not in last.fields
    take_over(desk.tables.offsets, OffsetTable(DataVersion(0, 5, 5), {"T@g9": {0: 9}}))
    copied = desk.ask(PAGE, {"table": OFFSETS, "start": 2, "snapshot": again.fields["snapshot"]})
    assert copied.fields["snapshot"] != again.fields["snapshot"] and b"g9" in bytes(copied.body)


def test_a_page_ends_with_the_group_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_pages, "PAGE_OFFSETS", 10)
    desk = Desk()
    for number in range(30):
        desk.tables.offsets.commit("T", f"g{number // 6}", number % 6, number)
    assert desk.ask(PAGE, {"table": OFFSETS}).fields["next"] == "2"


def test_a_table_without_pages_is_answered_as_by_an_original() -> None:
    assert Desk().ask(PAGE, {"table": "songs"}).code == 3
    assert Desk().ask(PAGE, {"table": OFFSETS, "tallyInstance": "another"}).code == 1
