"""The processes that a development cluster is made of: their ids, what each is told, and in which order they start.

::

    bookie-1, bookie-2, …       storage nodes of ledgers
    nameserver                  knows where the topics are; there is one as soon as there are brokers
    broker-a, broker-b, …       masters
    broker-a-s1, broker-a-s2    slaves of broker-a
"""

from __future__ import annotations

import enum
import json
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tallystick.admin.process import ProcessId, ProcessState, state_of
from tallystick.errors import UsageError

HOST = "127.0.0.1"
NAME_SERVER = "nameserver"
# A development cluster holds little, and its files are made in full when they are begun.
SMALL_STORE = {"mappedFileSizeCommitLog": 64 * 1024 * 1024, "maxHashSlotNum": 500_000, "maxIndexNum": 2_000_000}

_ID = re.compile(r"bookie-(\d+)|nameserver|(broker-[a-z])(?:-s(\d+))?")

Config = Mapping[str, str | int | bool]


class NodeKind(enum.Enum):
    """The value is its command, and the table of its configuration."""

    BOOKIE = "bookie"
    NAME_SERVER = "nameserver"
    BROKER = "broker"


@dataclass(frozen=True)
class DevNode:
    """``process`` None: it was ordered and not started yet. ``port`` 0: it has never said where it listens.

    ``ha_port``: where a master feeds its slaves. ``sync_flush``: a broker that syncs a message before it answers.
    ``log_start``: where in its log the lines of this process begin; None once one of them has said where it listens,
    and until then ``port`` is of an earlier process.
    """

    id: str
    process: ProcessId | None = None
    port: int = 0
    ha_port: int = 0
    sync_flush: bool = False
    log_start: int | None = None

    @property
    def kind(self) -> NodeKind:
        return kind_of(self.id)

    @property
    def state(self) -> ProcessState:
        return ProcessState.DEAD if self.process is None else state_of(self.process)

    @property
    def runs(self) -> bool:
        return self.state is not ProcessState.DEAD

    @property
    def ready(self) -> bool:
        """It runs and has said where it listens."""
        return self.runs and self.log_start is None

    @property
    def listens_on(self) -> int | None:
        """The port, or where it listened last; None while nobody knows."""
        return self.port or None if self.log_start is None else None


@dataclass(frozen=True)
class DevState:
    """``uri`` is where the bookies' metadata is, or would be."""

    uri: str
    nodes: tuple[DevNode, ...] = ()

    def find(self, node: str) -> DevNode | None:
        return next((one for one in self.nodes if one.id == node), None)

    def of(self, kind: NodeKind) -> list[DevNode]:
        return [node for node in self.nodes if node.kind is kind]

    def with_node(self, node: DevNode) -> DevState:
        other_nodes = [one for one in self.nodes if one.id != node.id]
        return replace(self, nodes=tuple(sorted([*other_nodes, node], key=lambda one: _order(one.id))))

    def with_order(self, ids: Sequence[str]) -> DevState:
        """With those that are ordered and those that were there; an earlier order for the same kinds that was not
        carried out gives way."""
        kinds = {kind_of(node) for node in ids}
        remaining_nodes = [node for node in self.nodes if node.process is not None or node.kind not in kinds]
        ordered = replace(self, nodes=tuple(remaining_nodes))
        for node in ids:
            ordered = ordered if ordered.find(node) else ordered.with_node(DevNode(node))
        return ordered

    @property
    def name_server(self) -> str | None:
        """Its address; None: there is none, or nobody knows yet."""
        node = self.find(NAME_SERVER)
        return f"{HOST}:{node.listens_on}" if node is not None and node.listens_on else None


def _order(node: str) -> tuple[int, str, int]:
    """Bookies by their numbers, the name server, each master with its slaves."""
    match = _ID.fullmatch(node)
    assert match is not None, f"{node} is none of ours"
    bookie, master, slave = match.groups()
    if bookie:
        return 0, "", int(bookie)
    return (1, "", 0) if master is None else (2, master, int(slave or 0))


def kind_of(node: str) -> NodeKind:
    return next(kind for kind in NodeKind if node.startswith(kind.value))


def bookie_ids(count: int) -> list[str]:
    return [f"bookie-{number}" for number in range(1, count + 1)]


def broker_ids(shape: str) -> list[str]:
    """Returns the ids of brokers and their name server: ``2+1`` is two masters with one slave each, ``2`` is without.

    Raises UsageError.
    """
    match = re.fullmatch(r"(\d{1,2})(?:\+(\d))?", shape)
    masters, slaves = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    if not 1 <= masters <= len(string.ascii_lowercase):
        raise UsageError("brokers are masters+slaves of each, as in 1+1: 1 to 26, and at most 9 slaves", given=shape)
    ids = [NAME_SERVER]
    for letter in string.ascii_lowercase[:masters]:
        ids += [f"broker-{letter}", *(f"broker-{letter}-s{number}" for number in range(1, slaves + 1))]
    return ids


def waves(nodes: Iterable[str]) -> list[list[str]]:
    """Who is started together: masters when their name server answers, slaves when it knows the masters."""
    ordered = sorted(nodes, key=_order)
    brokers = [node for node in ordered if kind_of(node) is NodeKind.BROKER]
    first = [node for node in ordered if node not in brokers]
    masters = [node for node in brokers if not _order(node)[2]]
    slaves = [node for node in brokers if _order(node)[2]]
    return [wave for wave in (first, masters, slaves) if wave]


def configuration(state: DevState, node: DevNode, data: str) -> str:
    """The text of a node's file of settings. ``data``: its own folder.

    Bookies take any port: their registrations tell it. Brokers and the name server keep theirs while one of them runs,
    as the others would have to search for them.
    """
    topics_run = any(one.runs for one in state.nodes if one.kind is not NodeKind.BOOKIE)
    port, ha_port = (node.port, node.ha_port) if topics_run else (0, 0)
    settings: Config
    if node.kind is NodeKind.NAME_SERVER:
        settings = {"listenPort": port, "kvConfigPath": f"{data}/kvConfig.json"}
    elif node.kind is NodeKind.BOOKIE:
        settings = _bookie(state.uri, node.id, data)
    else:
        own = {
            "listenPort": port,
            "haListenPort": ha_port,
            "flushDiskType": "SYNC_FLUSH" if node.sync_flush else "ASYNC_FLUSH",
        }
        settings = {**_broker(state, node.id, data), **own, **SMALL_STORE}
    # A JSON string, number or truth value is written the same in TOML.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in settings.items()]
    return "".join([f"[{node.kind.value}]\n", *lines])


def _bookie(uri: str, node: str, data: str) -> Config:
    return {
        "metadataServiceUri": uri,
        "bookieId": node,
        "bookiePort": 0,
        "advertisedAddress": HOST,
        "allowLoopback": True,
        "journalDirectory": data,
        "ledgerDirectories": data,
    }


def _broker(state: DevState, node: str, data: str) -> Config:
    """A master that has slaves waits for them."""
    assert state.name_server is not None, "it starts before the brokers"
    _, name, slave = _order(node)
    has_slave = any(one.id.startswith(f"{name}-s") for one in state.nodes)
    master = "SYNC_MASTER" if has_slave else "ASYNC_MASTER"
    return {
        "brokerName": name,
        "brokerId": slave,
        "brokerRole": "SLAVE" if slave else master,
        "namesrvAddr": state.name_server,
        "storePathRootDir": data,
    }
