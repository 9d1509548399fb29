"""Topics and groups in pages: who reads them gets a whole table of one version, whatever changes meanwhile (H12)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.stores import SteppingClock
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker.config_pages import KEPT_S, MOST_OF_HOST, MOST_READERS, PAGE_ENTRIES, ConfigPages
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import DataVersion

PEER = "10.0.0.2:4711"


@dataclass
class Names:
    """A table of names alone."""

    version: DataVersion
    names: str


class Master:
    """``page`` is asked for in the table of now, ``names``, of version ``counter``."""

    def __init__(self, names: str = "dbace") -> None:
        self.clock = SteppingClock()
        self._pages = ConfigPages[Names](self.clock)
        self.names, self.counter = names, 1

    def version(self, counter: int) -> str:
        return dialect.write(DataVersion(0, 5, counter)).decode()

    def page(self, start: int, version: str | None, most: int | None = 2, peer: str = PEER) -> str:
        """The names of the page, behind the counter of their table's version."""
        table = Names(DataVersion(0, 5, self.counter), self.names)
        page = self._pages.page(peer, table, dict.fromkeys(self.names), version, start, most)
        assert set(page.names) <= set(page.table.names)
        return f"{page.table.version.counter}{''.join(page.names)}"

    def change(self, names: str) -> None:
        self.names, self.counter = names, self.counter + 1


@pytest.fixture
def master() -> Master:
    return Master()


def test_pages_are_in_the_order_of_the_names(master: Master) -> None:
    assert [master.page(start, master.version(1)) for start in (0, 2, 4, 5)] == ["1ab", "1cd", "1e", "1"]


def test_who_begins_reads_the_table_of_now(master: Master) -> None:
    assert master.page(3, None) == master.page(3, "") == master.page(3, master.version(7)) == "1ab"


@pytest.mark.rule("H12")
def test_h12_who_is_in_the_middle_of_a_table_goes_on_in_it_however_often_it_changes(master: Master) -> None:
    """A topic that changed 50 times a second kept a slave from its master's topics for as long as that lasted."""
    told = [master.page(0, None)]
    for start in (2, 4):
        master.change(master.names.replace("a", "") + "yz")
        told.append(master.page(start, master.version(1)))
    assert told == ["1ab", "1cd", "1e"]
    assert master.page(0, None, 9) == "3bcdeyz"


@pytest.mark.rule("H12")
def test_h12_readers_do_not_disturb_each_other(master: Master) -> None:
    readers = [f"10.0.0.{number}:1" for number in range(MOST_READERS)]
    for peer in readers:
        assert master.page(0, None, peer=peer) == f"{master.counter}ab"
        master.change(master.names)
    for counter, peer in enumerate(readers, start=1):
        assert master.page(2, master.version(counter), peer=peer) == f"{counter}cd"


def test_tables_are_kept_for_few_readers_those_that_asked_last_and_fewer_of_one_host(master: Master) -> None:
    def begin(peer: str) -> None:
        master.page(0, None, peer=peer)

    def has_its_table(peer: str) -> bool:
        return master.page(2, master.version(1), peer=peer) == "1cd"

    begin(PEER)
    for number in range(MOST_OF_HOST + 3):
        begin(f"10.0.0.9:{number}")
    assert len(master._pages._readings) == 1 + MOST_OF_HOST
    master.change("xyz")
    assert has_its_table(PEER)
    for number in range(MOST_READERS):
        begin(f"10.0.1.{number}:1")
    assert len(master._pages._readings) == MOST_READERS
    assert not has_its_table(PEER)


def test_a_table_is_kept_until_its_last_page_and_not_for_ever(master: Master) -> None:
    master.page(0, None)
    master.page(2, master.version(1))
    assert len(master._pages._readings) == 1
    master.page(4, master.version(1))
    assert not master._pages._readings
    master.page(0, None)
    master.clock.ms += int(KEPT_S * 1000) + 1000
    master.page(0, None, peer="10.0.0.9:1")
    assert list(master._pages._readings) == ["10.0.0.9:1"]


def test_odd_numbers_do_no_harm(master: Master) -> None:
    assert master.page(-3, master.version(1)) == "1ab"
    assert master.page(0, master.version(1), -1) == "1"
    long = Master("".join(chr(0x4E00 + number) for number in range(PAGE_ENTRIES + 1)))
    assert len(long.page(0, None, None)) == len(long.page(0, None, 10**6)) == 1 + PAGE_ENTRIES
    with pytest.raises(RemoteProtocolError):
        master.page(0, "{")


def test_the_version_of_a_page_is_short(master: Master) -> None:
    """Half a megabyte that is no strict JSON was a turn of the loop of 460 ms."""
    long = "{'counter':1,'x':[" + "1," * 600 + "1]}"
    with pytest.raises(RemoteProtocolError, match="at most 1024 bytes"):
        master.page(0, long)
