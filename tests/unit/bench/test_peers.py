"""Who takes part beside ours, what is said of those that cannot, and what a turn does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import peer_servers
import peers
import pytest
from peer_clients import Work, pipelined
from peers import KAFKA, LEDGERS, NATS, REDIS, SIDES, SIZES, PeersBench, Plan, Side, markdown
from report import OURS, Round
from turns import Failure

from tallystick.admin.dev_nodes import broker_ids

PLAN = Plan(limit=60, rounds=1, seconds=0.01, warm=0.0)


def test_every_load_has_ours_to_be_compared_with_and_says_what_an_answer_means() -> None:
    assert {side.load for side in SIDES} == set(SIZES)
    for load in SIZES:
        names = [side.name for side in SIDES if side.load == load]
        assert names[0] == OURS and len(names) == len(set(names)) > 2
    assert all(side.promise for side in SIDES)


@pytest.mark.parametrize(
    ("system", "module", "program", "how"),
    [
        (KAFKA, None, "java", "confluent_kafka is not installed: pip install confluent-kafka"),
        (NATS, None, None, f"nats is not installed: pip install nats-py; {peer_servers.GET_NATS}"),
        (KAFKA, "there", None, f"no java, javac, mvn on the PATH: {peer_servers.GET_KAFKA}"),
        (NATS, "there", None, peer_servers.GET_NATS),
        (REDIS, "there", None, peer_servers.GET_REDIS),
        (REDIS, "there", "redis-server", None),
        (LEDGERS, None, None, None),
    ],
)
def test_what_is_missing_is_said_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, system: str, module: str | None, program: str | None, how: str | None
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: module)
    monkeypatch.setattr("shutil.which", lambda name: program)
    assert peers.missing_of(system) == how


def test_a_further_client_that_is_missing_is_said_too_unless_its_system_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "aiokafka" else "there")
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert peers.absent() == {"Kafka, flushed, aiokafka": "aiokafka is not installed: pip install aiokafka"}
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert list(peers.absent()) == [KAFKA, NATS, REDIS]


def test_a_send_of_ours_is_answered_when_master_and_slave_have_it() -> None:
    """What is said of it is what the cluster of the bench is set to."""
    assert broker_ids(peers.BROKERS) == ["nameserver", "broker-a", "broker-a-s1"], "such a master is a synchronous one"
    promises = {side.promise for side in SIDES if side.system == peers.TOPICS}
    assert promises == {"the master and its slave have it in their page cache"}


def test_a_window_is_kept_full_and_waited_for() -> None:
    most = unanswered = sent = 0

    async def send() -> None:
        nonlocal most, unanswered, sent
        sent, unanswered = sent + 1, unanswered + 1
        most = max(most, unanswered)
        await asyncio.sleep(0)
        unanswered -= 1

    async def work() -> int:
        loop = asyncio.get_running_loop()
        return await pipelined(loop.time() + 0.05, lambda: asyncio.ensure_future(send()), each=10, window=40)

    assert asyncio.run(work()) == 10 * sent and 0 < most <= 4 and unanswered == 0


@asynccontextmanager
async def idle_client(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async def work(until: float) -> int:
        sum(range(100_000))
        return 10

    yield work


@asynccontextmanager
async def broken_client(address: str, name: str, size: int) -> AsyncIterator[Work]:
    raise LookupError("nobody is there")
    yield


def test_a_turn_is_a_round_and_its_errors_can_be_carried_to_another_process() -> None:
    side = Side("load", OURS, LEDGERS, idle_client, "all")
    done = peers.turn(side, "load, 100 B", 100, "n", "a:1", [], PLAN)
    assert (done.load, done.side) == ("load, 100 B", OURS) and done.cpu_us.keys() == {"client", "servers"}
    with pytest.raises(RuntimeError, match="LookupError: nobody is there") as failed:
        peers.turn(Side("load", OURS, LEDGERS, broken_client, "all"), "load", 100, "n", "a:1", [], PLAN)
    assert failed.value.__cause__ is None


def test_only_those_that_run_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = PeersBench(PLAN, {LEDGERS: ("a:1", []), KAFKA: ("b:1", [])})
    asked: list[tuple[str, str]] = []

    async def turn(side: Side, load: str, size: int) -> None:
        asked.append((side.name, load))

    monkeypatch.setattr(bench, "_turn", turn)
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    asyncio.run(bench.run())
    assert {side.system for side in SIDES if side.name in {name for name, _ in asked}} <= {LEDGERS, peers.TOPICS, KAFKA}
    assert [name for name, load in asked if load == "append, synced, 100 B"] == [
        OURS, f"{OURS}, one by one", "Kafka, flushed, confluent-kafka",
    ]  # fmt: skip


def test_the_report_says_what_is_missing_and_what_failed() -> None:
    machine = {"cores": 2, "cpu": "Chip", "python": "3.11", "codec": "python"}
    memory = {"rest": {LEDGERS: {"servers": 120.0}}, "loaded": {LEDGERS: {"servers": 390.4}}}
    results: dict[str, Any] = {
        "machine": machine, "seconds": 60.0, "skipped": 2, "resident_mb": memory,
        "rounds": [
            Round("read", side, 1000, 0, 0, {"client": cpu, "servers": 1.0}, cpu + 1, 0.0)
            for side, cpu in ((OURS, 1.0), ("Redis, redis-py", 3.0))
        ],
        "failures": [Failure(KAFKA, "start", "RuntimeError: no")], "missing": {NATS: "it is not there"},
    }  # fmt: skip
    text = markdown(results)
    assert "2 rounds skipped" in text and f"Not measured: {NATS}: it is not there." in text
    assert f"**{KAFKA} failed**: start: RuntimeError: no" in text
    assert f"| {LEDGERS} | 120 | 390 |" in text
    assert "| read in order | Redis, redis-py | nothing: there are no checksums |" in text
    assert "aiokafka" not in text, "it is not told what an answer means that nobody got"
    assert "| read | Redis, redis-py | 1,000 (1.0) | - | 3.00 + 1.00 = 4.00 | 2.00 |" in text
