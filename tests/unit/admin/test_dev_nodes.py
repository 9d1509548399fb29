"""What the nodes of a development cluster are told, and in which order they start."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from typing import Any

import pytest

from support.processes import running
from tallystick.admin.dev_nodes import (
    DevNode,
    DevState,
    NodeKind,
    bookie_ids,
    broker_ids,
    configuration,
    kind_of,
    waves,
)
from tallystick.admin.process import ProcessId
from tallystick.bookkeeper.bookie import keys as bookie_keys
from tallystick.errors import UsageError
from tallystick.rocketmq.broker import keys as broker_keys
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.nameserver import keys as name_server_keys
from tallystick.runtime import keyfile

NOBODY = ProcessId(1, 1)
ME = running(os.getpid())
ALL = ["bookie-1", "nameserver", "broker-a", "broker-a-s1", "broker-a-s2", "broker-b"]


def told(state: DevState, node: str) -> dict[str, Any]:
    """Of a cluster that is to have them all."""
    state = state.with_order(ALL)
    [known] = [one for one in state.nodes if one.id == node]
    document = tomllib.loads(configuration(state, known, f"/dev/{node}/data"))
    assert list(document) == [kind_of(node).value]
    return dict(document[kind_of(node).value])


def test_nodes_are_kept_in_order() -> None:
    state = DevState("sqlite:///x/metadata.db")
    for name in (
        "broker-a-s10",
        "broker-b",
        "bookie-10",
        "broker-a-s2",
        "nameserver",
        "bookie-2",
        "broker-a",
        "bookie-1",
    ):
        state = state.with_node(DevNode(name, NOBODY))
    state = state.with_node(replace(state.nodes[1], port=7))
    assert [(node.id, node.port) for node in state.nodes] == [
        ("bookie-1", 0), ("bookie-2", 7), ("bookie-10", 0), ("nameserver", 0),
        ("broker-a", 0), ("broker-a-s2", 0), ("broker-a-s10", 0), ("broker-b", 0),
    ]  # fmt: skip
    assert [node.id for node in state.of(NodeKind.BOOKIE)] == ["bookie-1", "bookie-2", "bookie-10"]


def test_an_order_that_was_not_carried_out_gives_way_to_the_next_of_its_kind() -> None:
    ordered = DevState("sqlite:///x/metadata.db", (DevNode("bookie-1", NOBODY),)).with_order(ALL)
    assert [node.id for node in ordered.nodes] == ALL
    assert ordered.with_order([]) == ordered
    assert [node.id for node in ordered.with_order(["bookie-1", "bookie-2"]).nodes] == [
        "bookie-1",
        "bookie-2",
        *ALL[1:],
    ]
    fewer = ordered.with_order(["nameserver", "broker-a"])
    assert [node.id for node in fewer.nodes] == ["bookie-1", "nameserver", "broker-a"]


def test_brokers_by_their_shape() -> None:
    assert bookie_ids(2) == ["bookie-1", "bookie-2"]
    assert broker_ids("1") == ["nameserver", "broker-a"]
    assert broker_ids("2+1") == ["nameserver", "broker-a", "broker-a-s1", "broker-b", "broker-b-s1"]
    for wrong in ("", "0", "0+1", "27", "1+", "a", "1+1+1", "-1"):
        with pytest.raises(UsageError, match="as in 1\\+1"):
            broker_ids(wrong)


def test_masters_wait_for_their_name_server_and_slaves_for_their_master() -> None:
    assert waves(list(reversed(ALL))) == [
        ["bookie-1", "nameserver"],
        ["broker-a", "broker-b"],
        ["broker-a-s1", "broker-a-s2"],
    ]
    assert waves(["broker-a-s1"]) == [["broker-a-s1"]]


def test_only_a_master_with_slaves_waits_for_them() -> None:
    state = DevState("sqlite:///x/metadata.db", (DevNode("nameserver", ME, 7),))
    roles = {node: told(state, node)["brokerRole"] for node in ALL if kind_of(node) is NodeKind.BROKER}
    assert roles == {
        "broker-a": "SYNC_MASTER",
        "broker-a-s1": "SLAVE",
        "broker-a-s2": "SLAVE",
        "broker-b": "ASYNC_MASTER",
    }
    slave = told(state, "broker-a-s2")
    assert (slave["brokerName"], slave["brokerId"], slave["namesrvAddr"]) == ("broker-a", 2, "127.0.0.1:7")


def test_brokers_keep_their_ports_while_another_of_them_runs() -> None:
    name_server, master = DevNode("nameserver", ME, 7), DevNode("broker-a", NOBODY, 8000, 9000)
    state = DevState("sqlite:///x/metadata.db", (name_server, master))
    assert (told(state, "broker-a")["listenPort"], told(state, "broker-a")["haListenPort"]) == (8000, 9000)
    state = DevState(
        "sqlite:///x/metadata.db", (replace(name_server, process=NOBODY), master, DevNode("bookie-1", ME, 6))
    )
    assert (told(state, "broker-a")["listenPort"], told(state, "broker-a")["haListenPort"]) == (0, 0)
    assert told(state, "bookie-1")["bookiePort"] == 0


def test_every_text_is_taken_by_the_node_that_gets_it() -> None:
    state = DevState("sqlite:///x/metadata.db", (DevNode("nameserver", ME, 7),)).with_order(ALL)
    for node in state.nodes:
        text = configuration(state, node, f'/dev/"quoted" ü/{node.id}')
        values = keyfile.parse_toml("node.toml", text, node.kind.value)
        if node.kind is NodeKind.BOOKIE:
            ignored = bookie_keys.SCHEMA.read(values).ignored
        elif node.kind is NodeKind.NAME_SERVER:
            ignored = name_server_keys.SCHEMA.read(values).ignored
        else:
            loaded = broker_keys.SCHEMA.read(values)
            ignored = loaded.ignored
            assert (loaded.settings.role is Role.SLAVE) == (node.id not in ("broker-a", "broker-b"))
        assert ignored == ()
