"""To whom nodes of ZooKeeper belong, and who is let in: a real server with users, or with none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.security import make_acl

import tallystick
from support.between import carried, listening_between
from support.certificates import secret_file
from support.waiting import until
from support.zookeeper import missing
from support.zookeeper_identities import (
    METADATA,
    SECRET,
    USER,
    Drivers,
    SecuredZooKeeper,
    digest,
    filled,
    serving,
    walked,
)
from support.zookeeper_stores import session_of
from tallystick.bookkeeper.metadata import zk_session
from tallystick.bookkeeper.metadata.layout import ledger_path
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.store import Create
from tallystick.errors import MetadataRefused, MetadataUncertain, UsageError

pytestmark = [
    pytest.mark.zookeeper,
    pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}"),
]

OPEN = {"world:anyone:31"}
SASL = f"sasl:{USER}:31"
NEWER = "a newer secret"


@pytest.fixture
def userless(tmp_path: Path) -> Iterator[SecuredZooKeeper]:
    """It knows no SASL."""
    yield from serving(tmp_path, None)


# -- what is made -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("N4")
@pytest.mark.parametrize(
    ("schemes", "secrets", "owners"),
    [
        ("sasl", (SECRET,), {SASL}),
        ("digest", (SECRET,), {digest(SECRET)}),
        ("digest", (NEWER, SECRET), {digest(NEWER), digest(SECRET)}),
        ("sasl,digest", (SECRET,), {SASL, digest(SECRET)}),
    ],
    ids=["sasl", "digest", "two-secrets", "both"],
)
async def test_all_that_is_made_belongs_to_the_identity(
    secured: SecuredZooKeeper, drivers: Drivers, schemes: str, secrets: tuple[str, ...], owners: set[str]
) -> None:
    await filled(await drivers.open(secured.uri(*secrets, schemes=schemes)))
    acls = secured.acls()
    assert {frozenset(one) for one in acls.values()} == {frozenset(owners)}
    assert {f"{secured.root}/available/b1", f"{secured.root}/available/readonly/b2", f"{secured.root}/LAYOUT"} < {*acls}
    assert {
        "/prod/tallystick/going/s/1",
        "/prod/managed-ledgers/public/default/persistent",
        "/prod/tallystick/ledgers/x",
    } < {*acls}


async def test_without_the_setting_all_is_everybody_s(secured: SecuredZooKeeper, drivers: Drivers) -> None:
    await filled(await drivers.open(secured.uri(is_secured=False)))
    assert all(one == OPEN for one in secured.acls().values())


async def test_folders_around_the_cluster_stay_everybody_s(secured: SecuredZooKeeper, drivers: Drivers) -> None:
    driver = await drivers.open(secured.uri())
    await filled(driver)
    for path in ("/prod", "/"):
        listed, _ = await session_of(driver).call("get_acls", path)
        assert [(one.id.scheme, one.id.id) for one in listed] == [("world", "anyone")], path


# -- who is let in ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("N2", "N4")
async def test_who_shows_nothing_is_refused_by_name(secured: SecuredZooKeeper, drivers: Drivers) -> None:
    ledger = await filled(await drivers.open(secured.uri()))
    stranger = await drivers.open(secured.plain)
    other = await drivers.open(secured.uri(NEWER, file="other", schemes="digest", user="somebody"))
    for driver in (stranger, other):
        session = session_of(driver)
        for refused in (
            driver.bookies(),
            driver.read_ledger(ledger),
            driver.store.get(f"{secured.root}/LAYOUT"),
            driver.store.get_many([f"{secured.root}/LAYOUT"]),
            driver.store.children(secured.root),
            driver.store.change(Create(f"{secured.root}/more/x", b"")),
            driver.store.change(Create(f"{secured.root}/cookies/x", b"")),
        ):
            with pytest.raises(MetadataRefused, match=r"zkUser=NAME&zkPasswordFile=PATH") as caught:
                async with asyncio.timeout(session.timeout_s / 2):  # it is not asked again
                    await refused
            assert not caught.value.retriable and str(caught.value.path).startswith(secured.root)


@pytest.mark.rule("N4", "N14")
async def test_a_ledger_that_may_not_be_read_is_not_deleted(secured: SecuredZooKeeper, drivers: Drivers) -> None:
    """Its node alone is closed: ZooKeeper deletes it for who may change the folder, and nobody fenced the bookies."""
    driver = await drivers.open(secured.uri(is_secured=False))
    ledger = await filled(driver)
    owner = [make_acl("sasl", USER, all=True)]
    await session_of(driver).call("set_acls", ledger_path(secured.root, ledger), owner)
    async with tallystick.connect(secured.plain) as stranger:
        with pytest.raises(MetadataRefused):
            await stranger.delete_ledger(ledger)
    assert (await driver.read_ledger(ledger)).value == METADATA


async def test_a_watch_that_was_refused_hears_again_once_the_node_is_given_back(
    secured: SecuredZooKeeper, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zk_session, "REFUSED_RETRY_S", 0.05)
    owner = await drivers.open(secured.uri())
    await filled(owner)
    stranger = await drivers.open(secured.plain)
    heard = asyncio.Event()
    stranger.store.watch_children(f"{secured.root}/available", heard.set)
    with pytest.raises(MetadataRefused):
        await stranger.bookies()
    assert not heard.is_set()
    await walked(secured.uri(), "clear")
    async with asyncio.timeout(20):
        await heard.wait()


@pytest.mark.rule("N2", "N10")
async def test_a_wrong_secret_is_refused_at_once(secured: SecuredZooKeeper) -> None:
    with pytest.raises(MetadataRefused, match="does not let this user in") as caught:
        async with asyncio.timeout(10):
            await open_driver(secured.uri("wrong", "wrong too"), session_timeout_s=30.0)
    assert "wrong" not in str(caught.value)


@pytest.mark.rule("N5")
async def test_a_server_that_knows_no_users_is_not_believed(userless: SecuredZooKeeper, drivers: Drivers) -> None:
    with pytest.raises(MetadataRefused, match=r"knows no users.*section Server"):
        await open_driver(userless.uri())
    await filled(await drivers.open(userless.uri(schemes="digest")))
    assert {frozenset(one) for one in userless.acls().values()} == {frozenset({digest(SECRET)})}


@pytest.mark.rule("N2", "N9")
@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [("", 0o600, "one secret, or two"), ("a\nb\nc\n", 0o600, "one secret, or two"), ("a", 0o644, "read by everybody")],
)
async def test_a_file_that_protects_nothing_is_refused(tmp_path: Path, text: str, mode: int, why: str) -> None:
    file = secret_file(tmp_path / "password", text, mode)
    with pytest.raises(UsageError, match=why):
        await open_driver(f"zk://127.0.0.1:1/ledgers?zkUser=a&zkPasswordFile={file}")


# -- a session that goes on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schemes", ["sasl", "digest"])
async def test_a_server_that_comes_back_hears_again_who_a_session_is(
    secured: SecuredZooKeeper, drivers: Drivers, schemes: str
) -> None:
    driver = await drivers.open(secured.uri(schemes=schemes), session_timeout_s=30.0)
    ledger = await filled(driver)
    secured.server.stop()
    reading = asyncio.ensure_future(driver.read_ledger(ledger))
    await asyncio.to_thread(secured.server.start)
    assert (await reading).value == METADATA


async def test_a_connection_that_breaks_in_a_login_is_no_refusal(secured: SecuredZooKeeper, drivers: Drivers) -> None:
    """kazoo would never connect again."""
    far_port, broken = secured.server.port, 0

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal broken
        there, back = await asyncio.open_connection("127.0.0.1", far_port)
        with contextlib.closing(back):
            if broken == 2:
                await carried((reader, back), (there, writer))
                return
            back.write(await _frame(reader))  # the connect
            writer.write(await _frame(there))
            await _frame(reader)  # the first token
            broken += 1

    async with listening_between(visit) as secured.server.port:  # of the URI alone
        driver = await drivers.open(secured.uri())
        secured.server.port = far_port
        await driver.init_cluster()
        assert broken == 2
        await driver.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big"))


@pytest.mark.rule("N2")
async def test_a_new_secret_at_the_server_is_taken_from_the_file(secured: SecuredZooKeeper, drivers: Drivers) -> None:
    """First the file has both, then the server the new one; the nodes stay those of the same id."""
    driver = await drivers.open(secured.uri(), session_timeout_s=30.0)
    ledger = await filled(driver)
    secured.uri(NEWER, SECRET)
    for secret in (SECRET, NEWER):
        secured.server.stop()
        secured.server.know({USER: secret})
        reading = asyncio.ensure_future(driver.read_ledger(ledger))
        await asyncio.to_thread(secured.server.start)
        assert (await reading).value == METADATA
    assert {frozenset(one) for one in secured.acls().values()} == {frozenset({SASL})}


async def test_a_login_that_is_refused_later_is_said_and_tried_again(
    secured: SecuredZooKeeper, drivers: Drivers
) -> None:
    driver = await drivers.open(secured.uri(), session_timeout_s=30.0)
    ledger = await filled(driver)
    session = session_of(driver)
    secured.server.stop()
    secured.server.know({USER: NEWER})
    await asyncio.to_thread(secured.server.start)
    await until(lambda: session.refusal is not None, 30.0)
    session.timeout_s = 0.2
    with pytest.raises(MetadataUncertain, match="does not let this user in"):
        await driver.read_ledger(ledger)
    session.timeout_s = 30.0
    reading = asyncio.ensure_future(driver.read_ledger(ledger))
    secured.uri(NEWER)  # the file is mended
    assert (await reading).value == METADATA and session.refusal is None
