"""Walks over the nodes of a cluster in ZooKeeper, which show and change to whom they belong."""

from __future__ import annotations

import asyncio
import json

import pytest

from support.zookeeper import missing
from support.zookeeper_identities import (
    METADATA,
    SECRET,
    USER,
    Drivers,
    SecuredZooKeeper,
    digest,
    filled,
    walked,
)
from tallystick import cli
from tallystick.admin.zk_acl import zk_acl
from tallystick.bookkeeper.metadata import zk_acls
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.zk_identity import digest_id
from tallystick.errors import MetadataRefused, UsageError

pytestmark = [
    pytest.mark.zookeeper,
    pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}"),
]

OPEN = {"world:anyone:31"}
SASL = f"sasl:{USER}:31"
NEWER = "a newer secret"


@pytest.mark.rule("N4")
@pytest.mark.parametrize("schemes", ["sasl", "digest"])
async def test_a_cluster_is_given_to_an_identity_and_back(
    secured: SecuredZooKeeper, drivers: Drivers, schemes: str
) -> None:
    driver = await drivers.open(secured.plain)  # it shows nothing, and goes on while all is everybody's
    ledger = await filled(driver)
    uri = secured.uri(schemes=schemes)
    before = await walked(uri, "show")
    nodes = len(secured.acls())
    assert (before.nodes, before.differing, before.closed) == (nodes, nodes, 0)
    assert before.by_acl == {"world:anyone rwcda": nodes} and len(before.first) == zk_acls.MOST_SHOWN
    after = await walked(uri, "set")
    assert (after.nodes, after.differing, after.closed, after.first) == (nodes, 0, 0, [])
    owner = {SASL} if schemes == "sasl" else {digest(SECRET)}
    assert {frozenset(one) for one in secured.acls().values()} == {frozenset(owner)}
    with pytest.raises(MetadataRefused):
        await driver.read_ledger(ledger)
    closed = await walked(secured.plain, "show")
    assert closed.nodes == closed.differing == 0 and closed.closed == 4  # nothing below the four is seen
    assert f"{secured.root}: closed to this identity" in closed.first
    cleared = await walked(uri, "clear")
    assert (cleared.nodes, cleared.differing) == (nodes, 0)
    assert all(one == OPEN for one in secured.acls().values())
    assert (await driver.read_ledger(ledger)).value == METADATA


@pytest.mark.rule("N4")
async def test_a_new_secret_of_digest_is_granted_before_the_old_one_goes(
    secured: SecuredZooKeeper, drivers: Drivers
) -> None:
    old = await drivers.open(secured.uri(SECRET, file="old", schemes="digest"))
    ledger = await filled(old)
    both = secured.uri(NEWER, SECRET, file="both", schemes="digest")
    assert (await walked(both, "rotate")).differing == 0
    new_uri = secured.uri(NEWER, file="new", schemes="digest")
    new, middle = await drivers.open(new_uri), await drivers.open(both)
    for driver in (old, middle, new):
        assert (await driver.read_ledger(ledger)).value == METADATA
    made = (await middle.create_ledger(METADATA)).value  # those who know one secret see it, too
    for driver in (old, new):
        assert (await driver.read_ledger(made)).value == METADATA
    assert (await walked(new_uri, "set")).differing == 0
    assert {frozenset(one) for one in secured.acls().values()} == {frozenset({digest(NEWER)})}
    with pytest.raises(MetadataRefused):
        await old.read_ledger(ledger)
    assert (await new.read_ledger(ledger)).value == METADATA


async def test_a_rotation_leaves_open_what_is_open(secured: SecuredZooKeeper, drivers: Drivers) -> None:
    await filled(await drivers.open(secured.plain))
    found = await walked(secured.uri(), "rotate")
    assert found.differing == 0 and all(one == OPEN for one in secured.acls().values())


async def test_a_walk_that_ends_half_way_is_begun_again(
    secured: SecuredZooKeeper, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await drivers.open(secured.uri(is_secured=False))
    await filled(driver)
    for number in range(60):
        await driver.create_ledger(METADATA, 10_000 * number + 7)
    nodes = len(secured.acls())
    monkeypatch.setattr(zk_acls, "AT_ONCE", 4)

    class Killed(Exception): ...

    def stop(more: int, seen: list[int] = []) -> None:  # noqa: B006  # how many it saw
        seen.append(more)
        if len(seen) > 40:
            raise Killed

    with pytest.raises(Killed):
        await zk_acl(secured.uri(), "set", stop)
    done = sum(one == {SASL} for one in secured.acls().values())
    assert 40 <= done < nodes
    found = await walked(secured.uri(), "show")
    assert (found.nodes, found.differing) == (nodes, nodes - done)
    now, changed = await zk_acl(secured.uri(), "set", lambda _: None)
    assert changed is not None and changed.changed == nodes - done and now.differing == 0


@pytest.mark.rule("N14")
async def test_nodes_of_somebody_else_are_named_and_left(secured: SecuredZooKeeper, drivers: Drivers) -> None:
    await filled(await drivers.open(secured.uri()))
    foreign = secured.uri(NEWER, file="foreign", schemes="digest")
    before = secured.acls()
    for order in ("show", "set", "clear", "rotate"):
        found = await walked(foreign, order)
        assert found.closed == 4 and found.nodes == 0, order
    assert secured.acls() == before


async def test_a_walk_needs_zookeeper_and_somebody_to_give_to(secured: SecuredZooKeeper) -> None:
    for uri, order, why in (
        ("sqlite:///m.db", "show", "the mode of the file and its folder"),
        (secured.plain, "set", "zkUser=…&zkPasswordFile=…"),
        (secured.plain, "rotate", "zkUser=…&zkPasswordFile=…"),
    ):
        with pytest.raises(UsageError, match=why):
            await walked(uri, order)


@pytest.mark.rule("N10")
def test_the_command_says_what_is_left(secured: SecuredZooKeeper, capsys: pytest.CaptureFixture[str]) -> None:
    """Its exit code is 3 while something is, and nothing that it prints is a secret, or can be tried as one."""

    async def fill() -> None:
        driver = await open_driver(secured.plain)
        assert isinstance(driver, ClusterMetadata)
        await filled(driver)
        await driver.close()

    def run(*words: str) -> tuple[int, str]:
        code = cli.main(["cluster", "zk-acl", *words])
        out, err = capsys.readouterr()
        return code, out + err

    asyncio.run(fill())

    uri = secured.uri(schemes="sasl,digest")
    nodes = len(secured.acls())
    assert run("--show", "--uri", uri)[0] == 3
    code, text = run("--set", "--json", "--uri", uri)
    first = digest_id(USER, SECRET).partition(":")[2][:6]
    owners = f"digest:{USER}:{first}… rwcda, sasl:{USER} rwcda"
    assert code == 0 and json.loads(text) == {
        "changed": nodes,
        "nodes": nodes,
        "belong_to": {owners: nodes},
        "differing": 0,
        "closed": 0,
        "first": [],
    }
    assert run("--show", "--uri", uri)[0] == 0
    assert run("--show", "--uri", secured.plain)[0] == 3
    for words in ((), ("--show", "--set")):
        code, text = run(*words, "--uri", uri)
        assert code == 2 and "one of --show, --set, --clear and --rotate" in text
