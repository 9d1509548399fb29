from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from support.lagging import Lagging
from tallystick.admin import bookies
from tallystick.admin.bookies import BookiePresence
from tallystick.admin.ledgers import LedgerStatus
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import Moment
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.metadata.taken_out import TakenOut, TakenOutTree
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.cookie import Cookie, encode
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata
from tallystick.errors import MetadataConflict, MetadataError, MetadataUnavailable, NotFound, StorageError, UsageError
from tallystick.runtime.clock import SystemClock

_names = itertools.count()
COOKIE = Cookie("b", ("/data/tally",), ("/data/tally",), "the-cluster")


async def cluster(
    writable: Mapping[str, BookieInfo] | None = None,
    *,
    read_only: Mapping[str, BookieInfo] | None = None,
    joined: Sequence[str] = (),
) -> ClusterMetadata:
    """A cluster in memory: bookies that run, and those that joined once."""
    driver = ClusterMetadata(MemoryStore(f"bookies-{next(_names)}"))
    await driver.init_cluster()
    for bookies_of_a_list, place in ((writable or {}, False), (read_only or {}, True)):
        for name, info in bookies_of_a_list.items():
            await driver.register(name, info, read_only=place)
    for name in joined:
        await driver.write_cookie(name, encode(COOKIE), None)
    return driver


class Peer(asyncio.Protocol):
    """Answers every read with NO_LEDGER, or nothing at all."""

    answering = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.answering:
            request = v2.decode_request(data[4:])
            assert isinstance(request, v2.ReadFrame)
            self.transport.write(v2.encode_response(request, Code.NO_LEDGER))


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_registered_ones_and_those_that_are_down() -> None:
    info = BookieInfo.at("127.0.0.1", 1)
    driver = await cluster({"b": info}, read_only={"c": info}, joined=("a", "b"))
    found = await bookies.list_bookies(driver)
    assert [(one.id, one.registered) for one in found] == [
        ("a", BookiePresence.DOWN),
        ("b", BookiePresence.WRITABLE),
        ("c", BookiePresence.READ_ONLY),
    ]


async def test_one_that_answers(port: int) -> None:
    details = await bookies.bookie_details(await cluster({"b": BookieInfo.at("127.0.0.1", port)}, joined=("b",)), "b")
    assert details.answers_ms is not None and details.problem is None
    assert details.cookie == COOKIE


async def test_one_that_takes_no_entries_has_a_problem(port: int) -> None:
    """Its operator looks here when writers say that bookies are too few."""
    driver = await cluster(read_only={"b": BookieInfo.at("127.0.0.1", port)}, joined=("b",))
    details = await bookies.bookie_details(driver, "b")
    assert details.problem is not None and "takes no new entries: a disk" in details.problem


async def test_one_that_accepts_and_keeps_silent(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peer, "answering", False)
    monkeypatch.setattr(bookies, "PROBE_TIMEOUT_S", 0.05)
    details = await bookies.bookie_details(await cluster({"b": BookieInfo.at("127.0.0.1", port)}), "b")
    assert details.answers_ms is None and details.problem


async def test_one_that_is_down() -> None:
    details = await bookies.bookie_details(await cluster(joined=("b",)), "b")
    assert details.bookie.registered is BookiePresence.DOWN
    assert details.answers_ms is None and details.problem == "it has no registered address"


async def test_one_that_never_was() -> None:
    with pytest.raises(NotFound, match="no bookie 'x' in this cluster; it has b"):
        await bookies.bookie_details(await cluster(joined=("b",)), "x")


@pytest.mark.parametrize(("stored", "count"), [({}, 0), ({"deletionsWaiting": "7"}, 7), ({"deletionsWaiting": "x"}, 0)])
async def test_deletions_that_wait_are_shown(stored: dict[str, str], count: int) -> None:
    info = BookieInfo((), stored)
    details = await bookies.bookie_details(await cluster(writable={"b": info}, joined=["b"]), "b")
    assert (details.deletions_waiting, details.bookie.ledgers_ahead) == (count, 0)


async def test_one_that_has_ledgers_newer_than_the_metadata_has_a_problem(port: int) -> None:
    info = replace(BookieInfo.at("127.0.0.1", port), properties={"ledgersAhead": "3"})
    driver = await cluster(writable={"b": info}, joined=["b"])
    assert [bookie.ledgers_ahead for bookie in await bookies.list_bookies(driver)] == [3]
    details = await bookies.bookie_details(driver, "b")
    assert details.bookie.ledgers_ahead == 3 and details.answers_ms is not None
    assert details.problem is not None and "put newer metadata back" in details.problem


async def test_one_that_has_ledgers_in_limbo_has_a_problem(port: int) -> None:
    info = replace(BookieInfo.at("127.0.0.1", port), properties={"limbo": "3"})
    driver = await cluster(writable={"b": info}, joined=["b"])
    assert [bookie.ledgers_in_limbo for bookie in await bookies.list_bookies(driver)] == [3]
    details = await bookies.bookie_details(driver, "b")
    assert details.bookie.ledgers_in_limbo == 3 and details.answers_ms is not None
    assert details.problem is not None and "its disk may lack entries" in details.problem


async def test_a_number_that_is_none_hides_no_bookie() -> None:
    digits = "9" * 5000
    strange = BookieInfo((), {"limbo": digits, "scrub": f"1 2 {digits}"})
    driver = await cluster(writable={"b": strange, "c": BookieInfo((), {"limbo": "3"})})
    statuses = await bookies.list_bookies(driver)
    assert [bookie.ledgers_in_limbo for bookie in statuses] == [0, 3]
    assert [bookie.scrub for bookie in statuses] == [None, None]


def test_a_collection_is_ordered_in_the_bookies_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        bookies.order_collection(str(tmp_path), now=True)
    (tmp_path / "tally").mkdir()
    for now, word in ((False, "soon"), (True, "now")):
        bookies.order_collection(str(tmp_path), now=now)
        assert (tmp_path / "tally" / "collect").read_text().split()[0] == word


@pytest.fixture
async def joined() -> ClusterMetadata:
    """b0, b1 and b2 joined once and are down."""
    return await cluster(joined=("b0", "b1", "b2"))


def on(*ensembles: tuple[str, ...]) -> LedgerMetadata:
    return LedgerMetadata(1, 1, 1, tuple(Fragment(10 * at, ensemble) for at, ensemble in enumerate(ensembles)))


@pytest.mark.rule("N14")
async def test_a_bookie_that_holds_nothing_is_forgotten_and_no_other(joined: ClusterMetadata) -> None:
    await joined.create_ledger(on(("b1",)))
    await bookies.forget_bookie(joined, "b0", "op@host")
    assert [one.id for one in await bookies.list_bookies(joined)] == ["b1", "b2"]
    (line,) = await TakenOutTree(joined).all()
    assert line == TakenOut("b0", "op@host", line.at_ms, "forget", "its cookie is deleted")
    assert abs(line.at_ms - SystemClock().wall_ms()) < 60_000
    with pytest.raises(NotFound, match="no bookie 'b0' in this cluster; it has b1, b2"):
        await bookies.forget_bookie(joined, "b0", "op@host")


async def test_a_bookie_that_any_fragment_of_a_ledger_names_is_not_forgotten(joined: ClusterMetadata) -> None:
    for ledger in range(7):
        await joined.create_ledger(on(("b0",), ("b1",), ("b2",)), ledger)
    for name in ("b0", "b1", "b2"):
        with pytest.raises(
            UsageError, match=r"this bookie has entries of 7 ledgers, by id 0, 1, 2, 3, 4, \.\.\.: start it again"
        ):
            await bookies.forget_bookie(joined, name, "op@host")
    assert await joined.cookies() == ["b0", "b1", "b2"]


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_bookie_that_runs_is_not_forgotten(joined: ClusterMetadata, read_only: bool) -> None:
    registration = await joined.register("b0", BookieInfo.at("127.0.0.1", 1), read_only=read_only)
    with pytest.raises(UsageError, match="stop it first"):
        await bookies.forget_bookie(joined, "b0", "op@host")
    await registration.close()
    await bookies.forget_bookie(joined, "b0", "op@host")


async def test_a_bookie_that_comes_back_while_ledgers_are_looked_at_is_not_forgotten(
    joined: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ledgers(driver: ClusterMetadata) -> AsyncIterator[LedgerStatus]:
        await driver.register("b0", BookieInfo.at("127.0.0.1", 1))
        return
        yield

    monkeypatch.setattr(bookies, "list_ledgers", ledgers)
    with pytest.raises(UsageError, match="stop it first"):
        await bookies.forget_bookie(joined, "b0", "op@host")
    assert "b0" in await joined.cookies()


async def test_nor_is_one_whose_registration_a_server_that_lags_does_not_list_yet(
    joined: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(joined.store, MemoryStore)
    store = Lagging(joined.store.where.rpartition("/")[2])

    async def ledgers(driver: ClusterMetadata) -> AsyncIterator[LedgerStatus]:
        await joined.register("b0", BookieInfo.at("127.0.0.1", 1))
        store.lags = True
        return
        yield

    monkeypatch.setattr(bookies, "list_ledgers", ledgers)
    with pytest.raises(UsageError, match="stop it first"):
        await bookies.forget_bookie(ClusterMetadata(store), "b0", "op@host")
    assert "b0" in await joined.cookies()


@pytest.mark.parametrize("read_only", [False, True])
async def test_nor_is_one_that_comes_back_after_the_last_look(
    joined: ClusterMetadata, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    """Its cookie was deleted while it was registered: it took entries into folders that start no bookie any more."""
    delete_cookie = joined.delete_cookie

    async def late(*args: Any, **named: Any) -> None:
        await joined.register("b0", BookieInfo.at("127.0.0.1", 1), read_only=read_only)
        await delete_cookie(*args, **named)

    monkeypatch.setattr(joined, "delete_cookie", late)
    with pytest.raises(MetadataConflict, match="came back"):
        await bookies.forget_bookie(joined, "b0", "op@host")
    assert "b0" in await joined.cookies() and await TakenOutTree(joined).all() == []


async def test_nor_is_one_that_came_and_went_while_ledgers_were_looked_at(
    joined: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that crashes after each start, or went on after it hung, took entries of a ledger that was not looked at."""
    creation = await joined.bookie_creation("b0")

    async def ledgers(driver: ClusterMetadata) -> AsyncIterator[LedgerStatus]:
        registration = await driver.register("b0", BookieInfo.at("127.0.0.1", 1), joined=creation)
        await joined.create_ledger(on(("b0",)), 7)
        await registration.close()
        return
        yield

    monkeypatch.setattr(bookies, "list_ledgers", ledgers)
    with pytest.raises(MetadataConflict, match="changed this cookie"):
        await bookies.forget_bookie(joined, "b0", "op@host")
    assert "b0" in await joined.cookies() and await TakenOutTree(joined).all() == []


async def test_a_cookie_that_changes_while_ledgers_are_looked_at_stays(
    joined: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookie began again on the same folders, and is not yet registered."""

    async def ledgers(driver: ClusterMetadata) -> AsyncIterator[LedgerStatus]:
        found = await driver.read_cookie("b0")
        assert found is not None
        await driver.write_cookie("b0", found.value, found.version)
        return
        yield

    monkeypatch.setattr(bookies, "list_ledgers", ledgers)
    with pytest.raises(MetadataConflict, match="changed this cookie"):
        await bookies.forget_bookie(joined, "b0", "op@host")
    assert "b0" in await joined.cookies() and await TakenOutTree(joined).all() == []


async def test_ledgers_that_were_listed_over_two_connections_prove_nothing(
    joined: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([Moment("the-cluster", 1), Moment("the-cluster", 3)])

    async def sync() -> Moment:
        return next(moments)

    monkeypatch.setattr(joined, "sync", sync)
    with pytest.raises(MetadataUnavailable, match="try again"):
        await bookies.forget_bookie(joined, "b0", "op@host")
    assert "b0" in await joined.cookies()


async def test_an_audit_line_that_cannot_be_read_is_refused(joined: ClusterMetadata) -> None:
    tree = TakenOutTree(joined)
    for at_ms in (1000, 999):
        await tree.note(TakenOut("bookie-2", "op", at_ms, "forget", "its cookie is deleted"))
    assert [(line.bookie, line.at_ms) for line in await tree.all()] == [("bookie-2", 999), ("bookie-2", 1000)]
    await joined.store.change(Create("/tallystick/ledgers/taken-out/2-b1", b"[]"))
    with pytest.raises(MetadataError, match="cannot be read"):
        await tree.all()
