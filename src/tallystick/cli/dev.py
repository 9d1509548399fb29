"""``tally dev``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from tallystick.cli import NOT_WELL
from tallystick.cli.options import WHOLE, Json, filled

if TYPE_CHECKING:
    from tallystick.admin.dev import DevCluster, DevStatus

app = App(name="dev", help="A cluster on this machine for development: start, stop, break and mend it.")

Dir = Annotated[
    str | None,
    Parameter(help="The cluster's folder. By default TALLY_DEV_DIR, else tallystick/dev in your state folder."),
]
Node = Annotated[
    str,
    Parameter(
        name="NODE",
        required=True,
        help="One or more of them: bookie-2, or 2 for short; nameserver, broker-a, broker-a-s1.",
    ),
]


def _cluster(directory: str | None) -> DevCluster:
    import os
    import sys

    from tallystick.admin.dev import DevCluster
    from tallystick.admin.dev_lookup import default_directory

    directory = filled("--dir", directory) or default_directory(os.environ)
    return DevCluster(directory, report=lambda line: print(line, file=sys.stderr))


@app.command
def up(
    *,
    bookies: Annotated[int | None, WHOLE, Parameter(help="How many bookies, 1 to 32.")] = None,
    brokers: Annotated[
        str | None,
        Parameter(
            help="Masters+slaves of each, as 1+1, and their name server. A master that has slaves waits for them."
        ),
    ] = None,
    flush: Annotated[
        Literal["sync", "async"] | None,
        Parameter(
            help="sync: brokers that start now have each message on the disk before they answer. New ones do async."
        ),
    ] = None,
    dir: Dir = None,
    json: Json = False,
) -> None:
    """Start the cluster, or what does not run of it. Data of earlier runs is kept.

    What is not named is as it was before. A new cluster for which nothing is named has 4 bookies. Nothing that runs is
    stopped: that is for `tally dev down` and `tally dev kill`.

    Example: `tally dev up --bookies 4 --brokers 1+1`
    """
    from tallystick.admin.dev_nodes import NodeKind
    from tallystick.cli import output

    state = _cluster(dir).up(
        bookies, filled("--brokers", brokers), sync_flush=None if flush is None else flush == "sync"
    )
    stores, servers = ([node.id for node in state.of(kind) if node.runs] for kind in (NodeKind.BOOKIE, NodeKind.BROKER))
    if json:
        output.json_line({"uri": state.uri, "bookies": stores, "name_server": state.name_server, "brokers": servers})
        return
    if stores:
        print(f"{output.quantity(len(stores), 'bookie', 'bookies')} at {state.uri}")
    if servers:
        print(f"{output.quantity(len(servers), 'broker', 'brokers')}, name server at {state.name_server}")


@app.command
def status(*, dir: Dir = None, json: Json = False) -> int:
    """Show each process: alive, paused or dead; its port; whether it is registered.

    Exit code 3 unless all live and listen.

    Example: `tally dev status`
    """
    from tallystick.admin.process import ProcessState
    from tallystick.cli import output

    nodes = _cluster(dir).status()
    output.rows([_row(one) for one in nodes], json=json, empty="this cluster is empty")
    return 0 if all(one.state is ProcessState.ALIVE and one.port is not None for one in nodes) else NOT_WELL


def _row(one: DevStatus) -> dict[str, Any]:
    return {
        "node": one.id,
        "state": one.state.value,
        "pid": one.pid,
        "port": one.port,
        "registered": one.registered,
    }


@app.command
def down(
    *,
    delete: Annotated[bool, Parameter(help="Delete the cluster's data as well.")] = False,
    dir: Dir = None,
) -> None:
    """Stop all of it. The data is kept for the next `tally dev up` unless --delete is given.

    Example: `tally dev down --delete`
    """
    from tallystick.cli import output

    process_count = _cluster(dir).down(delete=delete)
    print(f"{output.quantity(process_count, 'process', 'processes')} stopped{'; data deleted' if delete else ''}")


@app.command
def kill(*nodes: Node, dir: Dir = None) -> None:
    """Kill nodes without warning (SIGKILL), as a crash would.

    Example: `tally dev kill bookie-2 broker-a`
    """
    _print("killed", _cluster(dir).kill(_each_once(nodes)))


@app.command
def pause(*nodes: Node, dir: Dir = None) -> None:
    """Freeze nodes (SIGSTOP): they keep their connections and answer nothing.

    Example: `tally dev pause 3`
    """
    _print("paused", _cluster(dir).pause(_each_once(nodes)))


@app.command
def resume(*nodes: Node, dir: Dir = None) -> None:
    """Let paused nodes go on (SIGCONT).

    Example: `tally dev resume 3`
    """
    _print("resumed", _cluster(dir).resume(_each_once(nodes)))


@app.command
def restart(*nodes: Node, dir: Dir = None) -> None:
    """Start dead nodes again on their data; running ones are stopped first.

    Example: `tally dev restart bookie-2`
    """
    _print("restarted", _cluster(dir).restart(_each_once(nodes)))


def _each_once(nodes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(nodes))


def _print(outcome: str, ids: Iterable[str]) -> None:
    for node in ids:
        print(f"{node} {outcome}")
