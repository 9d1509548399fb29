"""What it costs that a send is answered when the disk has it: one broker with SYNC_FLUSH, and the same without.

    python bench/flush.py [--quick] [--json FILE] [--docs FILE]

One broker in this process, on this machine's disk, and a client that keeps a number of 1 KB messages in flight. With
SYNC_FLUSH each answer waits for a sync of the log and for the record of that sync, which are made side by side; all
that arrive meanwhile share the next one. The client's own work is in the figures.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import command
from machine import describe
from report import grid
from sends import send_request

from tallystick.rocketmq.broker.broker import start_broker
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.machine import this_machine

MIB = 1024 * 1024
TOPIC, BODY = "Sent", bytes(1024)
ANSWER_S = 60.0
WARM_S, SECONDS = 0.5, 5.0
WINDOWS = (1, 16, 256)
MODES = {"SYNC_FLUSH": True, "ASYNC_FLUSH": False}


@dataclass(frozen=True)
class Round:
    """``window``: messages in flight."""

    mode: str
    window: int
    per_s: float
    p50_ms: float
    p99_ms: float


async def send_all(client: RemotingClient, address: str, window: int, seconds: float) -> tuple[list[float], float]:
    """The latencies of all sends, and how long they took altogether."""
    took: list[float] = []
    began = time.perf_counter()

    async def send() -> None:
        while (start := time.perf_counter()) - began < seconds:
            message = send_request(BODY, TOPIC)
            answer = await client.ask(address, message, ANSWER_S)
            assert answer.code == 0, answer.remark
            took.append(time.perf_counter() - start)

    await asyncio.gather(*(send() for _ in range(window)))
    return took, time.perf_counter() - began


async def measure(mode: str, window: int, folder: str, seconds: float) -> Round:
    store = StoreSettings(commit_log_file_bytes=256 * MIB, index=False, sync_flush=MODES[mode])
    outside = this_machine()
    broker = await start_broker(BrokerSettings(folder, "b0", "c0", port=0, store=store), outside)
    gc.freeze()  # as a broker's own process does
    client = RemotingClient(outside, RemotingSettings())
    address = "{}:{}".format(*broker.address)
    await send_all(client, address, window, WARM_S)
    took, whole = await send_all(client, address, window, seconds)
    await client.close()
    await broker.stop()
    p99 = sorted(took)[int(0.99 * len(took))]
    return Round(mode, window, len(took) / whole, statistics.median(took) * 1000, p99 * 1000)


def all_rounds(quick: bool) -> command.Results:
    """Everything that the report needs; the modes take turns."""
    rounds = []
    for _ in range(1 if quick else 3):
        for window in WINDOWS:
            for mode in MODES:
                with tempfile.TemporaryDirectory() as folder:
                    rounds.append(asyncio.run(measure(mode, window, folder, 1.0 if quick else SECONDS)))
                print(rounds[-1], file=sys.stderr, flush=True)
    return {"machine": describe(Path(tempfile.gettempdir())), "rounds": rounds}


def markdown(results: command.Results) -> str:
    """Medians of the rounds."""
    rows = []
    for window in WINDOWS:
        for mode in MODES:
            rounds = [asdict(one) for one in results["rounds"] if (one.mode, one.window) == (mode, window)]
            per_s, p50, p99 = (statistics.median(one[name] for one in rounds) for name in ("per_s", "p50_ms", "p99_ms"))
            rows.append([f"{window}", mode, f"{per_s:,.0f}", f"{p50:.2f}", f"{p99:.2f}"])
    return grid(["in flight", "flush", "sends/s", "p50, ms", "p99, ms"], rows)


def main() -> int:
    return command.run(__doc__, "one short round each", all_rounds, markdown, place="flush")


if __name__ == "__main__":
    sys.exit(main())
