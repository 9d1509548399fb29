"""Streams: appends to few and many, idle owners, changes of owner, followers, cursors, long lists; and beside Pulsar.

    python bench/stream.py [--quick] [--json FILE] [--docs FILE]

Four bookies of this machine (3/2/2), metadata in SQLite; changes of owner also on ZooKeeper where Java is. Every load
is a process of its own, so that memory and CPU are of it alone. Tables say what bounds there are and what misses them.
Beside Pulsar (``stream_pulsar.py``) only where the interop tests have installed it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # peers and servers are those of the tests

import command
import msgspec
import stream_pulsar
from machine import describe
from many_ledgers import metadata
from stream_loads import RAW, STREAM, WRITER, acks, alone, appends, long_list
from stream_report import markdown
from stream_waits import Waits, change_of_owner, hand_over, tail_busy, tail_idle

from support import zookeeper
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevState

BOOKIES = 4


@dataclass(frozen=True)
class Size:
    streams: tuple[int, ...]
    appends: int
    idle_s: float
    deaths: int
    hand_overs: int
    idle_tail: int
    busy_tail: int
    acks: int
    lists: tuple[int, int]  # ledgers of the short one and the long one
    openings: int
    pulsar_rounds: int
    pulsar_s: float


QUICK = Size((1, 100), 30_000, 2.0, 2, 5, 3, 1000, 2000, (10, 1000), 3, 1, 2.0)
FULL = Size((1, 100, 10_000), 200_000, 10.0, 20, 30, 20, 10_000, 20_000, (10, 10_000), 5, 3, 8.0)


def main() -> int:
    return command.run(
        __doc__, "few and short rounds, no 10,000 streams: a minute or two", measure, markdown, place="streams"
    )


def measure(quick: bool) -> command.Results:
    size, start = QUICK if quick else FULL, time.monotonic()
    results: command.Results = {"machine": describe(Path(tempfile.gettempdir())), "load": os.getloadavg()[0]}

    def say(text: str) -> None:
        print(f"{time.monotonic() - start:6.1f} s  {text}", file=sys.stderr, flush=True)

    with metadata("SQLite") as (folder, uri):
        cluster, state = _cluster(folder, uri)
        try:
            bookies = [node.process.pid for node in state.nodes if node.process is not None]
            results["appends"] = []
            for targets in size.streams:
                for side in (WRITER, STREAM, RAW):
                    results["appends"].append(
                        alone(appends, uri, side, targets, max(size.appends, 5 * targets), size.idle_s, bookies)
                    )
                    say(str(results["appends"][-1]))
            waits = [change_of_owner("SQLite", uri, size.deaths), alone(hand_over, "SQLite", uri, size.hand_overs)]
            say("owners changed")
            waits += [alone(tail_idle, uri, size.idle_tail), alone(tail_busy, uri, size.busy_tail)]
            say("followed")
            results["acks"] = alone(acks, uri, size.acks)
            say("acknowledged")
            results["lists"] = [alone(long_list, uri, ledgers, size.openings, 500) for ledgers in size.lists]
            say("opened long lists")
        finally:
            cluster.down()
    results["waits"] = [*waits, *_on_zookeeper(size)]
    say("owners changed on ZooKeeper")
    results["no_pulsar"] = stream_pulsar.missing()
    results["pulsar"] = [] if results["no_pulsar"] else stream_pulsar.beside(size.pulsar_rounds, size.pulsar_s)
    return {**results, "seconds": time.monotonic() - start}


def _cluster(folder: str, uri: str) -> tuple[DevCluster, DevState]:
    (Path(folder) / "dev.json").write_bytes(msgspec.json.encode(DevState(uri=uri)))
    cluster = DevCluster(folder)
    return cluster, cluster.up(BOOKIES)


def _on_zookeeper(size: Size) -> list[Waits]:
    if why := zookeeper.missing():
        print(f"no ZooKeeper server: {why}", file=sys.stderr)
        return []
    with metadata("ZooKeeper") as (folder, uri):
        cluster, _ = _cluster(folder, uri)
        try:
            return [
                change_of_owner("ZooKeeper", uri, size.deaths // 2),
                alone(hand_over, "ZooKeeper", uri, size.hand_overs),
            ]
        finally:
            cluster.down()


if __name__ == "__main__":
    sys.exit(main())
