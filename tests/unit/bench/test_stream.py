from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import stream_loads
import stream_pulsar
from report import OURS, Round
from stream_loads import RAW, STREAM, WRITER, Acks, Appends, Idle, LongList, keep_appending
from stream_pulsar import PULSAR
from stream_report import markdown
from stream_waits import Waits

from support import java

KILLED = Waits("after a kill", [1700.0, 2900.0, 1800.0], 3000, False, 6.0)


def run(side: str, targets: int, client_us: float, resident_mb: float = 60) -> Appends:
    idle = Idle(55, resident_mb, 2, 0, 8, 1.9)
    return Appends(side, targets, 1000, 50_000.4, client_us, 5.0, 0.4, idle, 1.2)


def results_of(**changes: Any) -> dict[str, Any]:
    results: dict[str, Any] = {
        "machine": {"cores": 2, "cpu": "a processor", "python": "3.11"},
        "load": 6.94,
        "seconds": 500.2,
        "appends": [run(WRITER, 100, 5.0), run(STREAM, 100, 7.5), run(RAW, 100, 5.0)],
        "waits": [KILLED],
        "acks": [Acks("one in flight", 2000, 382.4, 193.2)],
        "lists": [LongList(10_000, 19_000, 30.11, 9.9, 2.41, 166.2, 4.0, 2.31)],
        "no_pulsar": None,
        "pulsar": [
            Round("one in flight", OURS, 700, 0, 0, {"client": 100, "broker": 0, "bookies": 400}, 500, 0.1),
            Round("one in flight", PULSAR, 750, 0, 0, {"client": 90, "broker": 310, "bookies": 600}, 1000, 0.1),
        ],
    }
    return {**results, **changes}


def test_the_report_has_every_table() -> None:
    table = markdown(results_of())
    assert "| 100 | stream | 50,000 | 7.5 + 5.0 = 12.5 | 1.50; 1.25 | 0.40 | 1.2 |" in table
    assert "| 100 | stream | 60 (55) | 50.0 | 2 | 0 | 8 | 1.9 |" in table
    assert "| after a kill | 3 | 1700.0 | 1800.0 | 2900.0 | 2900.0 | longest < 3000 | 6.0 |" in table
    assert "| one in flight | 2,000 | 382 | 193.2 |" in table
    assert "| 10,000 | 19,000 | 30.1 (9.9) | 2.41 | 166 | 4.0 | 2.3 |" in table
    assert "| **tallystick** | 700 (0.7) | - | 100.00 + 0.00 + 400.00 = 500.00 | 0.50 |" in table
    assert "**missed**" not in table and "**not" not in table


def test_what_misses_its_bound_is_said() -> None:
    big = [run(WRITER, 10_000, 5.0, resident_mb=300), run(STREAM, 10_000, 7.5, resident_mb=200)]
    late = Waits("after a kill", [1700.0, 3000.0], 3000, False, 6.0)
    table = markdown(results_of(appends=big, waits=[late]))
    assert "longest < 3000, **missed**" in table
    assert table.count("**not < 200**") == 1 and "| stream | 200 (55), **not < 200** |" in table


def test_a_bound_is_for_the_median_or_the_longest() -> None:
    times = [1.0, 2.0, 99.0]
    assert Waits("", times, 10, True, 0).is_met and not Waits("", times, 10, False, 0).is_met


def test_without_pulsar_the_report_says_why() -> None:
    assert "Not measured beside Pulsar: no java on the PATH." in markdown(
        results_of(no_pulsar="no java on the PATH", pulsar=[])
    )


def test_pulsar_is_missing_where_it_would_have_to_be_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "missing", lambda: None)
    monkeypatch.setattr(stream_pulsar, "find_spec", lambda name: object())
    monkeypatch.setattr(java, "is_cached", lambda original: False)
    assert stream_pulsar.missing() == "Pulsar is not in the cache of the interop tests"
    monkeypatch.setattr(java, "is_cached", lambda original: True)
    assert stream_pulsar.missing() is None


class Target:
    """Answers each append some turns later; notes how many were open at most."""

    def __init__(self) -> None:
        self.count = self.open = self.most = 0

    def append_nowait(self, data: bytes) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self.count, self.open = self.count + 1, self.open + 1
        self.most = max(self.most, self.open)
        asyncio.get_running_loop().call_soon(self._answer, future)
        return future

    def _answer(self, future: asyncio.Future[Any]) -> None:
        self.open -= 1
        future.set_result(None)


async def test_appends_take_turns_and_fill_a_window() -> None:
    targets = [Target(), Target()]
    await keep_appending(targets, 25, window=10)
    assert [target.count for target in targets] == [13, 12]
    assert [target.most for target in targets] == [5, 5] and not any(target.open for target in targets)


def test_only_own_connections_count() -> None:
    before = stream_loads.connections()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        with accepted:
            assert stream_loads.connections() == before + 2
