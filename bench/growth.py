"""What an operation costs as there is more of everything: entries of a ledger, ledgers, topics, clients.

    python bench/growth.py [--quick] [--json FILE] [--docs FILE] [--entries N,N…] [--ledgers N,N…] [--topics N,N…]
                           [--clients N,N…]

Three bookies and a broker of this machine, metadata in SQLite; ours alone. Each size is a process of its own, and the
ledgers and topics of one size stay there for the next. CPU is that of the client and of all servers together, an
operation; what grows from the first size to the last is the last column. Half an hour at most, or one minute with
--quick.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command
from machine import Meter, describe
from report import grid
from sends import send_request
from stream_loads import PAYLOAD, WINDOW, alone, keep_appending

import tallystick
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import HOST, DevState, NodeKind
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.headers import CreateTopicHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.machine import this_machine

BOOKIES = 3
BATCH, AT_ONCE = 1000, 100
READ_ENTRIES = 200_000  # in order: a small ledger several times
ANSWER_S = 60.0
AXES = {
    "entries": "of a ledger",
    "ledgers": "closed ones, of one entry each",
    "topics": "of one queue each",
    "clients": "each with a connection to every bookie, and a ledger",
}
FULL = {
    "entries": (1000, 100_000, 10_000_000),
    "ledgers": (10, 1000, 100_000),
    "topics": (10, 1000, 10_000),
    "clients": (1, 4, 16, 64),
}
QUICK = {"entries": (1000, 50_000), "ledgers": (10, 500), "topics": (10, 500), "clients": (1, 16)}


Operation = Callable[[], Awaitable[object]]
Work = Callable[[str, list[int], int, int], Coroutine[Any, Any, list["Cost"]]]


@dataclass(frozen=True)
class Cost:
    """CPU µs an operation. ``size`` is that of the axis."""

    axis: str
    size: int
    operation: str
    count: int
    client_us: float
    servers_us: float
    others_cores: float


class Costs:
    """Collects what operations cost at one size, in the client's process."""

    def __init__(self, axis: str, size: int, servers: list[int]) -> None:
        self.axis, self.size, self._servers = axis, size, servers
        self.costs: list[Cost] = []

    async def of(self, operation: str, count: int, work: Awaitable[object]) -> None:
        meter, client = Meter(self._servers), time.process_time()
        await work
        client = time.process_time() - client
        meter.stop()
        servers = sum(meter.cpu[pid] for pid in self._servers)
        each = (client / count * 1e6, servers / count * 1e6)
        self.costs.append(Cost(self.axis, self.size, operation, count, *each, meter.others_cores))


async def of_entries(uri: str, servers: list[int], size: int, operations: int) -> list[Cost]:
    """A ledger that has so many entries, while it is open and then."""
    costs = Costs("entries", size, servers)
    async with tallystick.connect(uri) as bk:
        writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
        pending: deque[asyncio.Future[range]] = deque()
        for first in range(0, size, BATCH):
            if len(pending) == 4:
                await pending.popleft()
            pending.append(asyncio.ensure_future(writer.append_batch([PAYLOAD] * min(BATCH, size - first))))
        while pending:
            await pending.popleft()
        await costs.of("append, 1,000 in flight", 10 * operations, keep_appending([writer], 10 * operations))
        await writer.close()
        await costs.of("open", operations // 10, _open(bk, [writer.id] * (operations // 10)))
        async with bk.open_ledger(writer.id) as reader:
            part = min(READ_ENTRIES, reader.last_entry + 1)  # its end
            times = READ_ENTRIES // part

            async def in_order() -> None:
                for _ in range(times):
                    first, last = reader.last_entry + 1 - part, reader.last_entry
                    async with contextlib.aclosing(reader.read_arrow(first, last)) as batches:
                        async for _ in batches:
                            pass

            async def single() -> None:
                entry = random.randrange(reader.last_entry + 1)
                async with contextlib.aclosing(reader.read(entry, entry)) as entries:
                    async for _ in entries:
                        pass

            await costs.of("read in order", part * times, in_order())
            await costs.of("read one at random, 100 in flight", operations, _repeat(single, operations))
    return costs.costs


async def _repeat(work: Operation, count: int) -> None:
    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(work() for _ in range(min(AT_ONCE, count - first))))


async def _open(bk: BookKeeper, ledgers: list[int]) -> None:
    for ledger in ledgers:
        async with bk.open_ledger(ledger):
            pass


async def of_ledgers(uri: str, servers: list[int], size: int, operations: int) -> list[Cost]:
    """So many closed ledgers; those that are there already count."""
    costs = Costs("ledgers", size, servers)
    async with tallystick.connect(uri) as bk:
        ids = [ledger async for ledger in bk.ledgers()]

        async def make() -> None:
            async with bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
                await writer.append(PAYLOAD)
                ids.append(writer.id)

        async def read() -> None:
            async with bk.open_ledger(random.choice(ids)) as reader, contextlib.aclosing(reader.read(0, 0)) as entries:
                async for _ in entries:
                    pass

        async def listed() -> None:
            assert len([ledger async for ledger in bk.ledgers()]) == len(ids)

        await _repeat(make, max(0, size - len(ids)))
        await costs.of("create, append one and close", operations, _repeat(make, operations))
        await costs.of("open and read one", operations, _repeat(read, operations))
        await costs.of("list, a ledger", len(ids), listed())
    return costs.costs


async def of_topics(address: str, servers: list[int], size: int, operations: int) -> list[Cost]:
    """So many topics; messages go to one after the other."""
    costs = Costs("topics", size, servers)
    client = RemotingClient(this_machine(), RemotingSettings())
    names = [f"Grown{number:06d}" for number in range(size)]

    async def make(name: str) -> None:
        header = CreateTopicHeader(
            topic=name,
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        await _ask(client, address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_fields()))

    sent = 0

    async def send() -> None:
        nonlocal sent
        sent += 1
        await _ask(client, address, send_request(PAYLOAD, names[sent % size]))

    try:
        for first in range(0, size, AT_ONCE):  # one that is there already stays as it is
            await asyncio.gather(*map(make, names[first : first + AT_ONCE]))
        await _repeat(send, size)  # the first message of a queue makes its files
        await costs.of("send, 100 in flight", 10 * operations, _repeat(send, 10 * operations))
        await costs.of("create one more", AT_ONCE, asyncio.gather(*(make(f"More{size}-{n}") for n in range(AT_ONCE))))
    finally:
        await client.close()
    return costs.costs


async def _ask(client: RemotingClient, address: str, order: Command) -> None:
    answer = await client.ask(address, order, ANSWER_S)
    if answer.code:
        raise RuntimeError(f"the broker refused: {answer.code} {answer.remark}")


async def of_clients(uri: str, servers: list[int], size: int, operations: int) -> list[Cost]:
    """So many clients in one process, which share a window."""
    costs = Costs("clients", size, servers)
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(tallystick.connect(uri)) for _ in range(size)]
        writers = [await bk.create_ledger(3, write_quorum=3, ack_quorum=2) for bk in clients]
        await keep_appending(writers, WINDOW)  # connects
        await costs.of("append, 1,000 in flight over all", 10 * operations, keep_appending(writers, 10 * operations))
        for writer in writers:
            await writer.close()
    return costs.costs


def measure(quick: bool, **chosen: tuple[int, ...]) -> command.Results:
    """All axes, each from its smallest size to its largest; ``chosen`` are other sizes of some."""
    plan = {**(QUICK if quick else FULL), **chosen}
    operations, start, costs = 200 if quick else 2000, time.monotonic(), list[Cost]()
    results: command.Results = {"machine": describe(Path(tempfile.gettempdir())), "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="tally-growth-") as folder:
        cluster = DevCluster(folder)
        state = cluster.up(BOOKIES, "1+0")
        try:
            for axis, sizes in plan.items():
                for size in sizes:
                    costs += alone(*_work(axis, state), size, operations)
                    print(f"{time.monotonic() - start:6.1f} s  {axis}: {size:,}", file=sys.stderr, flush=True)
        finally:
            cluster.down()
    return {**results, "costs": costs, "seconds": time.monotonic() - start}


def _work(axis: str, state: DevState) -> tuple[Work, str, list[int]]:
    """What is done, where, and by which servers."""
    kind = NodeKind.BROKER if axis == "topics" else NodeKind.BOOKIE
    nodes = [node for node in state.nodes if node.kind is kind]
    where = f"{HOST}:{nodes[0].listens_on}" if axis == "topics" else state.uri
    works: dict[str, Work] = {
        "entries": of_entries,
        "ledgers": of_ledgers,
        "topics": of_topics,
        "clients": of_clients,
    }
    return works[axis], where, [node.process.pid for node in nodes if node.process is not None]


def sizes_of(text: str) -> tuple[int, ...]:
    """Ascending: what one size leaves is there for the next. Raises ArgumentTypeError, as the parser expects it."""
    sizes = text.replace("_", "").split(",")
    if not all(size.strip().isdecimal() and int(size) for size in sizes):
        raise argparse.ArgumentTypeError(f"sizes are whole numbers above 0 with commas between them, not {text!r}")
    return tuple(sorted(map(int, sizes)))


def markdown(results: command.Results) -> str:
    machine, costs = results["machine"], results["costs"]
    parts = [
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}, codec {machine['codec']}; "
        f"{results['seconds']:.0f} s, load average {results['load']:.1f} at its beginning. CPU µs an operation: "
        "client + servers = total."
    ]
    for axis in dict.fromkeys(one.axis for one in costs):
        sizes = list(dict.fromkeys(one.size for one in costs if one.axis == axis))
        rows = []
        for operation in dict.fromkeys(one.operation for one in costs if one.axis == axis):
            each = [one for one in costs if (one.axis, one.operation) == (axis, operation)]
            totals = [one.client_us + one.servers_us for one in each]
            cells = [
                f"{one.client_us:,.1f} + {one.servers_us:,.1f} = {total:,.1f}"
                for one, total in zip(each, totals, strict=True)
            ]
            rows.append([operation, *cells, f"{totals[-1] / totals[0]:.2f}" if totals[0] and len(sizes) > 1 else "-"])
        parts += [
            f"{axis.capitalize()} ({AXES[axis]}):",
            grid(["operation", *map("{:,}".format, sizes), "last ÷ first"], rows),
        ]
    return "\n\n".join(parts)


def main() -> int:
    options = {axis: f"sizes, with commas between them ({what})" for axis, what in AXES.items()}
    return command.run(
        __doc__,
        "small sizes: a minute",
        measure,
        markdown,
        place="growth",
        options=options,
        type_of_options=sizes_of,
    )


if __name__ == "__main__":
    sys.exit(main())
