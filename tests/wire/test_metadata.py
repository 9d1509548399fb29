"""What the original keeps in ZooKeeper, byte for byte, both ways."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.zookeeper import missing
from tallystick.bookkeeper.metadata import layout
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire import cookie, metadata, registration
from tallystick.bookkeeper.wire.values import BookieInfo, DigestType, Fragment, LedgerMetadata, LedgerState

GOLDEN = json.loads((Path(__file__).parent / "golden" / "metadata.json").read_text())
ZNODES = {node["path"]: bytes.fromhex(node["hex"]) for node in GOLDEN["znodes"]}
CASES = [pytest.param(case, id=case["name"]) for case in GOLDEN["ledger_metadata"]]


def expected(decoded: dict[str, Any]) -> LedgerMetadata:
    """The value that the original's own client read from the same bytes."""
    return LedgerMetadata(
        decoded["E"],
        decoded["Qw"],
        decoded["Qa"],
        tuple(Fragment(int(first), tuple(bookies)) for first, bookies in decoded["ensembles"].items()),
        DigestType.parse(decoded["digest"]),
        bytes.fromhex(decoded["password"]),
        LedgerState[decoded["state"]],
        decoded["last_entry"],
        decoded["length"],
        {name: bytes.fromhex(value) for name, value in decoded["custom"].items()},
        decoded["format"],
    )


@pytest.mark.rule("Q3")
@pytest.mark.parametrize("case", CASES)
def test_q3_ledger_metadata_of_the_original(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    found = metadata.decode(data)
    assert found == expected(case["decoded"])
    assert found.ctoken == case["decoded"]["ctoken"]
    assert metadata.encode(found) == data


@pytest.mark.rule("Q16")
@pytest.mark.parametrize("ledger", range(4))
def test_q16_closing_a_ledger_of_the_original_writes_what_it_would_have_written(ledger: int) -> None:
    created, closed = (bytes.fromhex(case["hex"]) for case in GOLDEN["ledger_metadata"][2 * ledger : 2 * ledger + 2])
    assert metadata.encode(replace(metadata.decode(created).closed(2, 48), ctoken=0)) == closed


def test_registrations_of_the_original() -> None:
    found = {path: data for path, data in ZNODES.items() if path.startswith("/ledgers/available/127")}
    assert len(found) == 3
    for path, data in found.items():
        bookie = path.rpartition("/")[2]
        host, _, port = bookie.rpartition(":")
        assert registration.decode(data, bookie) == BookieInfo.at(host, int(port))
        assert registration.encode(BookieInfo.at(host, int(port))) == data


def test_cookies_of_the_original() -> None:
    found = {path: data for path, data in ZNODES.items() if path.startswith("/ledgers/cookies/")}
    assert len(found) == 3
    for path, data in found.items():
        read = cookie.decode(data)
        assert read.host == path.rpartition("/")[2]
        assert read.instance_id == ZNODES["/ledgers/INSTANCEID"].decode()
        assert read.ledger_dirs[0].endswith("/ledgers")
        assert read.index_dirs is None
        assert cookie.encode(read) == data


def test_layout_of_the_original() -> None:
    assert ZNODES["/ledgers/LAYOUT"].decode() == layout.Manager.HIERARCHICAL.layout_text
    assert layout.manager_of(layout.Manager.HIERARCHICAL.layout_text, "") is layout.Manager.HIERARCHICAL


@pytest.mark.zookeeper
@pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}")
async def test_our_tree_is_that_of_the_original(zookeeper: str) -> None:
    """The same steps as in the recording: a new cluster, three bookies, four ledgers."""
    from kazoo.client import KazooClient

    driver = await open_driver(f"zk+hierarchical://{zookeeper}/golden/ledgers")
    instance = await driver.init_cluster()
    for path, data in ZNODES.items():
        bookie = path.rpartition("/")[2]
        if path.startswith("/ledgers/cookies/"):
            read = replace(cookie.decode(data), instance_id=instance)
            await driver.write_cookie(bookie, cookie.encode(read), None)
        elif path.startswith("/ledgers/available/127"):
            await driver.register(bookie, registration.decode(data, bookie))
    for case in GOLDEN["ledger_metadata"][::2]:
        await driver.create_ledger(metadata.decode(bytes.fromhex(case["hex"])))

    client = KazooClient(zookeeper)
    client.start()
    for node in GOLDEN["znodes"]:
        data, stat = client.get("/golden" + node["path"])
        original = ZNODES["/ledgers/INSTANCEID"].decode()
        assert data.decode("latin-1").replace(instance, original) == ZNODES[node["path"]].decode("latin-1"), node[
            "path"
        ]
        assert bool(stat.ephemeralOwner) == node["ephemeral"]
        assert stat.version == 0
    folders = {path.rpartition("/")[0] for path in ZNODES} | {"/ledgers/idgen"}
    for folder in folders - {""}:
        names = {path[len(folder) + 1 :] for path in ZNODES if path.rpartition("/")[0] == folder}
        assert set(client.get_children("/golden" + folder)) == names, folder
    for ledger, case in enumerate(GOLDEN["ledger_metadata"][::2]):
        assert client.get(f"/golden/ledgers/00/0000/L{ledger:04d}")[0].hex() == case["hex"]
    client.stop()
    client.close()
    await driver.close()
