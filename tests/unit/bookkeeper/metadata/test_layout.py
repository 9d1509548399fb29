"""Where a ledger's node is, and which clusters are ours to use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.metadata.layout import Manager, folders_of, ledger_path, manager_of
from tallystick.bookkeeper.wire.values import MAX_ID
from tallystick.errors import MetadataError


@pytest.mark.parametrize(
    ("ledger", "path"),
    [
        (0, "/r/00/0000/L0000"),
        (1, "/r/00/0000/L0001"),
        (1234567890, "/r/12/3456/L7890"),
        ((1 << 31) - 2, "/r/21/4748/L3646"),
        ((1 << 31) - 1, "/r/000/0000/0021/4748/L3647"),
        (1 << 32, "/r/000/0000/0042/9496/L7296"),
        (MAX_ID, "/r/922/3372/0368/5477/L5807"),
    ],
)
def test_paths(ledger: int, path: str) -> None:
    assert ledger_path("/r", ledger) == path


@given(st.integers(0, MAX_ID))
def test_a_path_holds_the_id_and_nothing_else(ledger: int) -> None:
    digits = ledger_path("/r", ledger).removeprefix("/r/").replace("/", "").replace("L", "")
    assert int(digits) == ledger
    assert len(digits) == (10 if ledger < (1 << 31) - 1 else 19)


@given(st.integers(0, MAX_ID))
def test_the_long_manager_has_all_ledgers_at_nineteen_digits(ledger: int) -> None:
    path = ledger_path("/r", ledger, Manager.LONG_HIERARCHICAL)
    assert path.removeprefix("/r/").replace("/", "").replace("L", "") == f"{ledger:019d}"
    assert ledger_path("/r", 1, Manager.LONG_HIERARCHICAL) == "/r/000/0000/0000/0000/L0001"


def test_folders_from_the_inside_out() -> None:
    assert list(folders_of("/a/r", "/a/r/00/0001/L0002")) == ["/a/r/00/0001", "/a/r/00"]
    assert len(list(folders_of("/r", ledger_path("/r", MAX_ID)))) == 4


HIERARCHICAL = Manager.HIERARCHICAL.layout_text


@pytest.mark.parametrize("text", [HIERARCHICAL, HIERARCHICAL + "\n", "1\nhierarchical:1"])
def test_layouts_that_we_know(text: str) -> None:
    assert manager_of(text, "") is Manager.HIERARCHICAL
    long_text = "2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"
    assert Manager.LONG_HIERARCHICAL.layout_text == long_text
    assert manager_of(long_text, "") is Manager.LONG_HIERARCHICAL


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be read"),
        ("2", "cannot be read"),
        ("2\nhierarchical", "cannot be read"),
        (HIERARCHICAL.replace("2\n", "3\n"), "cannot be read"),
        (HIERARCHICAL.replace(":1", ":2"), "version 2"),
        ("1\nflat:1", "with flat"),
        ("1\nlonghierarchical:1", "with longhierarchical"),
        (HIERARCHICAL.replace("Hier", "LegacyHier"), "LegacyHierarchicalLedgerManagerFactory"),
    ],
)
def test_layouts_that_we_refuse(text: str, reason: str) -> None:
    with pytest.raises(MetadataError, match=reason) as caught:
        manager_of(text, "host:2181/ledgers/LAYOUT")
    assert caught.value.fields["where"] == "host:2181/ledgers/LAYOUT"
