"""``tally dev``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tallystick.cli.options import Json

if TYPE_CHECKING:
    from tallystick.admin.dev import DevCluster, DevStatus

app = App(name="dev", help="A cluster on this machine for development: start, stop, break and mend it.")

Dir = Annotated[
    str | None,
    Parameter(help="The cluster's folder. By default TALLY_DEV_DIR, else tallystick/dev in your state folder."),
]
Bookie = Annotated[str, Parameter(help="One or more of them: bookie-2, or 2 for short.", consume_multiple=True)]


def _cluster(directory: str | None) -> DevCluster:
    import os
    import sys

    from tallystick.admin.dev import DevCluster, default_directory

    return DevCluster(directory or default_directory(os.environ), report=lambda line: print(line, file=sys.stderr))


@app.command
def up(
    *,
    bookies: Annotated[int | None, Parameter(help="How many bookies. By default 4, or as many as before.")] = None,
    dir: Dir = None,
    json: Json = False,
) -> None:
    """Start the cluster, or those bookies of it that do not run. Data of earlier runs is kept."""
    from tallystick.cli import output

    state = _cluster(dir).up(bookies)
    if json:
        output.json_line({"uri": state.uri, "bookies": [bookie.id for bookie in state.bookies]})
    else:
        print(f"{output.counted(len(state.bookies), 'bookie', 'bookies')} at {state.uri}")


@app.command
def status(*, dir: Dir = None, json: Json = False) -> None:
    """Show each bookie: alive, paused or dead; its port; whether it is registered."""
    from tallystick.cli import output

    output.rows([_row(one) for one in _cluster(dir).status()], json=json, empty="this cluster has no bookies")


def _row(one: DevStatus) -> dict[str, Any]:
    return {
        "bookie": one.id,
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
    """Stop all bookies. Their data is kept for the next `tally dev up` unless --delete is given."""
    from tallystick.cli import output

    stopped = _cluster(dir).down(delete=delete)
    print(f"{output.counted(stopped, 'bookie', 'bookies')} stopped{'; data deleted' if delete else ''}")


@app.command
def kill(*bookies: Bookie, dir: Dir = None) -> None:
    """Kill bookies without warning (SIGKILL), as a crash would."""
    _print("killed", _cluster(dir).kill(_some(bookies)))


@app.command
def pause(*bookies: Bookie, dir: Dir = None) -> None:
    """Freeze bookies (SIGSTOP): they keep their connections and answer nothing."""
    _print("paused", _cluster(dir).pause(_some(bookies)))


@app.command
def resume(*bookies: Bookie, dir: Dir = None) -> None:
    """Let paused bookies go on (SIGCONT)."""
    _print("resumed", _cluster(dir).resume(_some(bookies)))


@app.command
def restart(*bookies: Bookie, dir: Dir = None) -> None:
    """Start dead bookies again on their data; running ones are stopped first."""
    _print("restarted", _cluster(dir).restart(_some(bookies)))


def _some(bookies: tuple[str, ...]) -> tuple[str, ...]:
    from tallystick.errors import UsageError

    if not bookies:
        raise UsageError("name at least one bookie, as in: tally dev status")
    return tuple(dict.fromkeys(bookies))


def _print(done: str, ids: Iterable[str]) -> None:
    for bookie in ids:
        print(f"{bookie} {done}")
