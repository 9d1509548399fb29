"""The tables of ``stream.py``."""

from __future__ import annotations

from typing import Any

from report import Form, Round, grid, rounds_table
from stream_loads import WRITER, Acks, Appends, LongList
from stream_waits import Waits

MOST_MB, MOST_STREAMS = 200, 10_000
FORM = Form("appends", "client + broker + bookies", "pulsar", (("all CPU ÷ Pulsar's", lambda one: one.total_us),))


def markdown(results: dict[str, Any]) -> str:
    machine = results["machine"]
    parts = [
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}; {results['seconds']:.0f} s, "
        f"load average {results['load']:.1f} at its beginning.",
        "Appends of 100 B, 1,000 in flight over all:",
        _appends(results["appends"]),
        "The same processes before: each stream or writer has one acknowledged append, and is idle:",
        _idle(results["appends"]),
        _waits(results["waits"]),
        "Acknowledging with a durable cursor, each awaited:",
        _acks(results["acks"]),
        "A stream whose list has many ledgers:",
        _lists(results["lists"]),
    ]
    if results["no_pulsar"]:
        parts.append(f"Not measured beside Pulsar: {results['no_pulsar']}.")
    else:
        parts += ["Beside a Pulsar broker with the original's bookies, on ZooKeeper:", _pulsar(results["pulsar"])]
    return "\n\n".join(parts)


def _appends(runs: list[Appends]) -> str:
    writers = {run.targets: run for run in runs if run.side == WRITER}
    rows = []
    for run in runs:
        beside = writers[run.targets]
        total, total_beside = run.client_us + run.bookies_us, beside.client_us + beside.bookies_us
        rows.append(
            [
                f"{run.targets:,}",
                run.side,
                f"{run.rate:,.0f}",
                f"{run.client_us:.1f} + {run.bookies_us:.1f} = {total:.1f}",
                f"{run.client_us / beside.client_us:.2f}; {total / total_beside:.2f}",
                f"{run.open_ms:.2f}",
                f"{run.others_cores:.1f}",
            ]
        )
    titles = (
        "open", "of", "appends/s", "CPU µs: client + bookies = total", "÷ LedgerWriter's: client; total",
        "open one and append: client's CPU ms", "others' cores",
    )  # fmt: skip
    return grid(titles, rows)


def _idle(runs: list[Appends]) -> str:
    rows = []
    for run in runs:
        idle = run.idle
        missed = run.side != WRITER and run.targets >= MOST_STREAMS and idle.resident_mb >= MOST_MB
        rows.append(
            [
                f"{run.targets:,}",
                run.side,
                f"{idle.resident_mb:.0f} ({idle.before_mb:.0f})" + (f", **not < {MOST_MB}**" if missed else ""),
                f"{(idle.resident_mb - idle.before_mb) * 1000 / run.targets:.1f}",
                f"{idle.timers}",
                f"{idle.tasks}",
                f"{idle.connections}",
                f"{idle.cpu_ms_per_s:.1f}",
            ]
        )
    titles = (
        "open", "of", "RSS MB (before the first)", "KB each", "timers", "tasks", "TCP connections", "CPU, ms a second",
    )  # fmt: skip
    return grid(titles, rows)


def _waits(runs: list[Waits]) -> str:
    rows = []
    for run in runs:
        bound = f"{'median' if run.of_median else 'longest'} < {run.bound_ms:.0f}"
        times = sorted(run.times_ms)
        p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
        cells = [run.what, f"{len(times)}", f"{times[0]:.1f}", f"{run.median_ms:.1f}", f"{p99:.1f}", f"{times[-1]:.1f}"]
        rows.append([*cells, bound + ("" if run.is_met else ", **missed**"), f"{run.load:.1f}"])
    return grid(("waiting, ms", "times", "shortest", "median", "p99", "longest", "bound", "load average"), rows)


def _acks(runs: list[Acks]) -> str:
    rows = [[run.how, f"{run.count:,}", f"{run.rate:,.0f}", f"{run.client_us:.1f}"] for run in runs]
    return grid(("how", "acks", "acks/s", "client's CPU µs an ack"), rows)


def _lists(runs: list[LongList]) -> str:
    rows = [
        [
            f"{run.ledgers:,}",
            f"{run.list_bytes:,}",
            f"{run.open_ms:.1f} ({run.open_cpu_ms:.1f})",
            f"{run.append_ms:.2f}",
            f"{run.append_cpu_us:.0f}",
            f"{run.roll_over_cpu_ms:.1f}",
            f"{run.read_cpu_ms:.1f}",
        ]
        for run in runs
    ]
    titles = (
        "ledgers", "bytes stored", "open, ms (CPU)", "append, one in flight, ms", "CPU µs an append",
        "roll over, CPU ms", "open as a reader, CPU ms",
    )  # fmt: skip
    return grid(titles, rows)


def _pulsar(rounds: list[Round]) -> str:

    return rounds_table(rounds, [], FORM)
