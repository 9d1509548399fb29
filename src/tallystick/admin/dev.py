"""The development cluster: processes of this machine; the metadata of ledgers in one SQLite file.

::

    DIR/dev.json                 uri; for each node its id, process (pid, start time) and ports
    DIR/LOCK                     held while a command changes the cluster
    DIR/metadata.db              the coordination service of the bookies
    DIR/bookie-1/bookie.toml     what ``tally bookie run`` is given; likewise broker.toml, nameserver.toml
    DIR/bookie-1/bookie.log      what it prints
    DIR/bookie-1/data            what it stores

All ports are on loopback and any that are free; registrations, and ``dev.json``, carry those that were really bound.
All nodes of an order are written to ``dev.json`` before the first is started, and a process before it is waited for:
who comes after a crash of this command knows what was meant, and no process is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from tallystick.admin import dev_nodes, dev_services
from tallystick.admin.dev_nodes import DevNode, DevState, NodeKind
from tallystick.admin.process import ProcessId, ProcessState, send, spawn, wait_dead
from tallystick.errors import NotFound, StorageError, Unavailable, UsageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import OsDisk, read_file
from tallystick.runtime.folder_lock import FolderLock

DEFAULT_BOOKIES = 4  # one more than the default ensemble: one kill leaves a replacement
MOST_BOOKIES = 32  # each is a process
READY_S = 15.0
JOIN_S = 5.0  # for a broker to register, and a slave to be in sync
STOP_S = 10.0
POLL_S = 0.01
LOG_TAIL_LINES = 15
LOG_BYTES = 1 << 20  # of what a node prints before it is ready

_READY = re.compile(rb"^ready .*?address=\S*:(\d+)(?:.* ha=\S*:(\d+))?", re.MULTILINE)


@dataclass(frozen=True)
class DevStatus:
    """One node as it is now. ``pid`` is None when it was never started, ``port`` when it has not said where it listens,
    ``registered`` when nobody could say, and for the name server itself."""

    id: str
    state: ProcessState
    pid: int | None
    port: int | None
    registered: bool | None


class DevCluster:
    """The cluster of one folder. Every method is one order; none of them keeps anything in memory between two."""

    def __init__(self, directory: str, report: Callable[[str], None] = lambda line: None) -> None:
        self.directory = os.path.abspath(directory)
        self._disk = OsDisk()
        self._report = report

    def load(self) -> DevState | None:
        """Returns the state, with the ports that nodes have printed since. Returns None if no cluster was started."""
        path = self._path("dev.json")
        if not self._disk.exists(path):
            return None
        try:
            state = msgspec.json.decode(read_file(self._disk, path), type=DevState)
        except msgspec.DecodeError as error:
            raise StorageError(
                f"this file is not a development cluster's state: {error}. Stop what runs under it "
                f"(`pgrep -f {self.directory}`), then delete the folder",
                path=path,
            ) from error
        return replace(state, nodes=tuple(self._with_ports(node) for node in state.nodes))

    def up(self, bookies: int | None = None, brokers: str | None = None, *, sync_flush: bool | None = None) -> DevState:
        """Start what does not run. Running ones stay as they are; that there are more than are named is reported.

        ``bookies``: how many; ``brokers``: masters+slaves of each. What is not named is as it was; a new cluster for
        which nothing is named has four bookies; ``sync_flush``: whether brokers that are started now sync before
        they answer. Raises UsageError; Unavailable, with the end of the log, when one does
        not get ready: those started by this call are ended.
        """
        if bookies is not None and not 1 <= bookies <= MOST_BOOKIES:
            raise UsageError(f"a development cluster has 1 to {MOST_BOOKIES} bookies", bookies=bookies)
        named_ids = [*dev_nodes.bookie_ids(bookies or 0), *(dev_nodes.broker_ids(brokers) if brokers else ())]
        self._disk.makedirs(self.directory)
        with self._locked():
            state = self.load() or DevState(uri=f"sqlite://{self._path('metadata.db')}")
            state = state.with_order(named_ids if named_ids or state.nodes else dev_nodes.bookie_ids(DEFAULT_BOOKIES))
            self._report_others(state, named_ids)
            named_kinds = {dev_nodes.kind_of(node) for node in named_ids}
            nodes = [node for node in state.nodes if node.id in named_ids or node.kind not in named_kinds]
            brokers_to_start = [node for node in nodes if node.kind is NodeKind.BROKER and not node.runs]
            if sync_flush is not None:
                if not brokers_to_start:
                    self._report_flush(sync_flush)
                for node in brokers_to_start:
                    state = state.with_node(replace(node, sync_flush=sync_flush))
            return self._start(state, nodes)

    def status(self) -> list[DevStatus]:
        state = self._require()
        is_registered = asyncio.run(dev_services.registered(state))
        return [
            DevStatus(
                id=node.id,
                state=node.state,
                pid=None if node.process is None else node.process.pid,
                port=node.listens_on,
                registered=is_registered.get(node.id),
            )
            for node in state.nodes
        ]

    def down(self, *, delete: bool = False) -> int:
        """Stop all nodes. Returns how many ran. ``delete`` removes what we put into the folder, data included."""
        state = self._require()
        with self._locked():
            live_nodes = [node for node in state.nodes if node.runs]
            # Who registers goes before those it takes leave of.
            for kind in (NodeKind.BROKER, NodeKind.NAME_SERVER, NodeKind.BOOKIE):
                self._end([node for node in live_nodes if node.kind is kind])
            if delete:
                self._delete(state)
        return len(live_nodes)

    def kill(self, ids: Sequence[str]) -> list[str]:
        """End nodes without warning (SIGKILL), as a crash would. Raises UsageError for one that does not run."""
        return self._signal(ids, signal.SIGKILL, (ProcessState.ALIVE, ProcessState.PAUSED))

    def pause(self, ids: Sequence[str]) -> list[str]:
        """Freeze nodes (SIGSTOP): they keep their connections and answer nothing."""
        return self._signal(ids, signal.SIGSTOP, (ProcessState.ALIVE,))

    def resume(self, ids: Sequence[str]) -> list[str]:
        return self._signal(ids, signal.SIGCONT, (ProcessState.PAUSED,))

    def restart(self, ids: Sequence[str]) -> list[str]:
        """Stop nodes if they run, and start them on the same data."""
        state = self._require()
        nodes = self._choose(state, ids)
        with self._locked():
            self._end(nodes)
            self._start(state, nodes)
        return [node.id for node in nodes]

    # How the orders are carried out.

    def _path(self, *parts: str) -> str:
        return os.path.join(self.directory, *parts)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FolderLock(self.directory)
        try:
            yield
        finally:
            lock.release()

    def _require(self) -> DevState:
        state = self.load()
        if state is None:
            raise UsageError(
                "no development cluster here; start one with `tally dev up`, and the same --dir if one was given",
                directory=self.directory,
            )
        return state

    def _save(self, state: DevState) -> None:
        write_atomic(self._disk, self._path("dev.json"), msgspec.json.format(msgspec.json.encode(state)) + b"\n")

    def _choose(self, state: DevState, ids: Sequence[str]) -> list[DevNode]:
        """Returns the nodes with these ids; ``2`` is short for ``bookie-2``."""
        nodes = []
        for name in ids:
            node = state.find(f"bookie-{name}" if name.isdecimal() else name)
            if node is None:
                node_ids = ", ".join(one.id for one in state.nodes)
                raise NotFound(f"no {name!r} in this cluster; it has {node_ids}")
            nodes.append(node)
        return nodes

    def _signal(self, ids: Sequence[str], number: signal.Signals, states: tuple[ProcessState, ...]) -> list[str]:
        nodes = self._choose(self._require(), ids)
        for node in nodes:
            if node.state not in states or node.process is None or not send(node.process, number):
                names = " or ".join(state.value for state in states)
                raise UsageError(f"{node.id} is {node.state.value}, not {names}")
        for node in nodes:  # signals are delivered later: the caller may rely on the new state
            _await_effect(node, number)
        return [node.id for node in nodes]

    def _report_others(self, state: DevState, named_ids: Sequence[str]) -> None:
        """Report the nodes beyond those that were named: nothing here stops or starts them."""
        for kind in (NodeKind.BOOKIE, NodeKind.BROKER):
            named_nodes = [node for node in named_ids if dev_nodes.kind_of(node) is kind]
            others = [node for node in state.of(kind) if node.id not in named_nodes] if named_nodes else []
            if running := [node.id for node in others if node.runs]:
                self._report(
                    f"{', '.join(running)} running already, and left so: stop with `tally dev kill {' '.join(running)}`"
                )
            if dead := [node.id for node in others if not node.runs]:
                self._report(f"{', '.join(dead)} dead, and left so: start with `tally dev restart {' '.join(dead)}`")

    def _report_flush(self, sync_flush: bool) -> None:
        self._report(
            "--flush changes nothing now, as no broker is started: those that run go on as they were started; "
            f"`tally dev down` and `tally dev up --flush {'sync' if sync_flush else 'async'}` change it"
        )

    def _start(self, state: DevState, nodes: Sequence[DevNode]) -> DevState:
        """Start the nodes that do not run, and wait until each is ready, also those that ran and were not ready yet."""
        new_processes: list[ProcessId] = []
        awaited_ids = {node.id for node in nodes if not node.ready}
        if any(dev_nodes.kind_of(node) is NodeKind.BROKER for node in awaited_ids) and state.name_server is None:
            awaited_ids.add(dev_nodes.NAME_SERVER)  # a start ended before it listened
        if any(dev_nodes.kind_of(node) is NodeKind.BOOKIE for node in awaited_ids):
            asyncio.run(dev_services.ensure_metadata(state.uri))
        self._save(state)
        try:
            for wave in dev_nodes.waves(awaited_ids):
                for node in state.nodes:
                    if node.id in wave and not node.runs:
                        process, log_start = self._spawn(state, node)
                        new_processes.append(process)
                        state = state.with_node(replace(node, process=process, log_start=log_start))
                        self._save(state)
                for node in state.nodes:
                    if node.id in wave:
                        state = state.with_node(self._await_ready(node))
                self._save(state)
                brokers = [node for node in wave if dev_nodes.kind_of(node) is NodeKind.BROKER]
                if brokers and state.name_server is not None:
                    asyncio.run(dev_services.await_brokers(state.name_server, brokers, JOIN_S))
        except BaseException:
            for process in new_processes:
                send(process, signal.SIGKILL)
                wait_dead(process, STOP_S)
            raise
        return state

    def _spawn(self, state: DevState, node: DevNode) -> tuple[ProcessId, int]:
        """Start its process. Returns that, and where in the log its own lines begin."""
        data, config, log = self._path(node.id, "data"), self._path(node.id, f"{node.kind.value}.toml"), self._log(node)
        self._disk.makedirs(data)
        write_atomic(self._disk, config, dev_nodes.configuration(state, node, data).encode())
        log_start = os.path.getsize(log) if self._disk.exists(log) else 0
        return spawn([node.kind.value, "run", "--config", config], log=log), log_start

    def _log(self, node: DevNode) -> str:
        return self._path(node.id, f"{node.kind.value}.log")

    def _first_output(self, node: DevNode) -> bytes:
        """Returns what its process has printed since its start, up to a bound."""
        try:
            with open(self._log(node), "rb") as file:
                file.seek(node.log_start or 0)
                return file.read(LOG_BYTES)
        except FileNotFoundError:
            return b""

    def _with_ports(self, node: DevNode) -> DevNode:
        """Returns the node with the ports on which it listens, once it has printed them."""
        if node.log_start is None or not (match := _READY.search(self._first_output(node))):
            return node
        return replace(node, port=int(match[1]), ha_port=int(match[2] or 0), log_start=None)

    def _await_ready(self, node: DevNode) -> DevNode:
        """Wait until the node listens, and return it with its ports."""
        deadline = time.monotonic() + READY_S
        while True:
            is_dead = not node.runs  # before the log: what a dead process wrote is all there
            ready = self._with_ports(node)
            if ready.log_start is None:
                self._report(f"{ready.id} ready on {dev_nodes.HOST}:{ready.port}")
                return ready
            if is_dead or time.monotonic() > deadline:
                why = "ended" if is_dead else f"was not ready after {READY_S:.0f} s"
                tail = b"\n".join(self._first_output(node).splitlines()[-LOG_TAIL_LINES:]).decode(errors="replace")
                raise Unavailable(f"{node.id} {why}; the end of its log:\n{tail}\n", log=self._log(node))
            time.sleep(POLL_S)

    def _delete(self, state: DevState) -> None:
        """Delete what this command made: the user may keep other things in the folder."""
        for node in state.nodes:
            shutil.rmtree(self._path(node.id), ignore_errors=True)
        shutil.rmtree(self._path("metadata.db-leases"), ignore_errors=True)
        for name in self._disk.listdir(self.directory):
            if name in ("LOCK", "dev.json") or name.startswith("metadata.db"):
                self._disk.unlink(self._path(name))
        if not self._disk.listdir(self.directory):
            os.rmdir(self.directory)

    def _end(self, nodes: Sequence[DevNode]) -> None:
        processes = [node.process for node in nodes if node.process is not None]
        for process in processes:
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)  # a paused process handles nothing before it goes on
        deadline = time.monotonic() + STOP_S
        for process in processes:
            if not wait_dead(process, max(0.0, deadline - time.monotonic())):
                send(process, signal.SIGKILL)
                wait_dead(process, STOP_S)


def _await_effect(node: DevNode, number: signal.Signals) -> None:
    if number is signal.SIGKILL:
        if node.process is not None:
            wait_dead(node.process, STOP_S)
        return
    target_state = ProcessState.PAUSED if number is signal.SIGSTOP else ProcessState.ALIVE
    deadline = time.monotonic() + STOP_S
    while node.state not in (target_state, ProcessState.DEAD) and time.monotonic() < deadline:
        time.sleep(POLL_S / 10)
