"""``tallystick.testing``: clusters of production servers in this process, in virtual and in real time."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import tallystick
from tallystick.errors import CorruptRecord, TallyError, UsageError
from tallystick.runtime.events import Event
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.testing import Cluster, Stuck, cluster, run, virtual_time
from tallystick.testing.world import InProcessWorld

Run = Callable[[Coroutine[Any, Any, None]], None]
both = pytest.mark.parametrize("run_it", [run, asyncio.run], ids=["virtual", "real"])


async def payloads(c: Cluster, ledger: int) -> list[bytes]:
    """All of a ledger, recovered first."""
    async with c.connect() as bk, bk.open_ledger(ledger, recover=True) as reader:
        return [entry.data async for entry in reader]


async def send(c: Cluster, *bodies: bytes) -> None:
    async with c.topics() as mq:
        for body in bodies:
            result = await mq.producer("writers").send("Greetings", body)
            assert result.status is tallystick.SendStatus.SEND_OK


async def received(c: Cluster, count: int) -> set[bytes]:
    async with c.topics() as mq, mq.consumer("readers", "Greetings", start="first") as consumer:
        found = set[bytes]()
        async for message in consumer:
            found.add(message.body)
            if len(found) == count:
                return found
    raise AssertionError("a consumer ends only when it is left")


@both
def test_a_killed_bookie_is_replaced_and_comes_back_with_what_it_had(run_it: Run) -> None:
    async def scenario() -> None:
        async with cluster(bookies=4) as c, c.connect() as bk:
            async with bk.create_ledger(3, write_quorum=3, ack_quorum=3) as writer:
                await writer.append(b"0")
                [first, *_] = writer.metadata.ensemble
                c.bookies[first].kill()
                assert not c.bookies[first].is_running
                await writer.append(b"1")
                assert first not in writer.metadata.ensemble
            await c.bookies[first].start()
            for other in c.bookies.values():
                if other.name != first:
                    other.kill()
            async with bk.open_ledger(writer.id) as reader:
                assert [entry.data async for entry in reader.read(0, 0)] == [b"0"]

    run_it(scenario())


@both
def test_a_loss_of_power_takes_nothing_that_was_acknowledged(run_it: Run) -> None:
    async def scenario() -> None:
        async with cluster(bookies=3) as c:
            async with c.connect() as bk:
                writer = await bk.create_ledger()
                await writer.append_batch([b"x"] * 20)
                writer.abort()
            for bookie in c.bookies.values():
                bookie.lose_power()
            for bookie in c.bookies.values():
                await bookie.start()
            assert await payloads(c, writer.id) == [b"x"] * 20

    run_it(scenario())


@virtual_time
async def test_a_slave_serves_what_its_dead_master_sent_it() -> None:
    async with cluster(bookies=0, brokers="1+1") as c:
        await send(c, b"a", b"b")
        await asyncio.sleep(30)  # the slave copies its master's topics now and then
        c.brokers["broker-a"].kill()
        assert await received(c, 2) == {b"a", b"b"}
        await c.brokers["broker-a"].start()
        await c.settled()
        await send(c, b"c")


@both
def test_a_node_that_stopped_in_order_starts_again(run_it: Run) -> None:
    async def scenario() -> None:
        async with cluster(bookies=1, brokers="1") as c, c.connect() as bk:
            async with bk.create_ledger(1, write_quorum=1, ack_quorum=1) as writer:
                await writer.append(b"x")
            await send(c, b"m")
            for node in c.nodes.values():
                await node.stop()
                await node.stop()  # which changes nothing
                await node.start()
            await c.settled()
            assert await payloads(c, writer.id) == [b"x"]
            assert await received(c, 1) == {b"m"}

    run_it(scenario())


@both
def test_a_cut_or_paused_bookie_is_done_without_until_it_is_back(run_it: Run) -> None:
    async def scenario() -> None:
        async with cluster(bookies=3) as c, c.connect() as bk:
            writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
            one, other, _ = writer.metadata.ensemble
            c.cut("clients", one)
            assert await writer.append(b"0") == 0
            c.heal()
            c.bookies[other].pause()
            assert await writer.append(b"1") == 1
            c.heal()  # it stays paused
            c.bookies[other].resume()
            c.bookies[one].kill()
            assert await writer.append(b"2") == 2
            await writer.close()

    run_it(scenario())


async def test_programs_of_this_machine_reach_it_by_its_addresses() -> None:
    async with cluster(bookies=2, brokers="1") as c:
        async with tallystick.connect(c.uri) as bk:
            async with bk.create_ledger(2) as writer:
                await writer.append_batch([bytes(100_000)] * 30)
            assert await payloads(c, writer.id) == [bytes(100_000)] * 30
            c.bookies["bookie-1"].kill()
            async with bk.open_ledger(writer.id) as reader:
                assert len([entry async for entry in reader]) == 30
        await send(c, b"m")
        async with tallystick.topics(c.name_servers) as mq:
            async for message in mq.consumer("others", "Greetings", start="first"):
                assert message.body == b"m"
                break


async def test_an_ordinary_loop_is_left_as_it_was() -> None:
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory(), loop.get_exception_handler(), len(asyncio.all_tasks())
    with pytest.raises(UsageError):
        await cluster(brokers="many")
    c, other = await cluster(bookies=3, brokers="1+1"), await cluster(bookies=1)
    c.bookies["bookie-1"].kill()
    c.brokers["broker-a"].lose_power()
    await c.close()
    other.bookies["bookie-1"].kill()
    await other.bookies["bookie-1"].start()
    await other.close()
    await asyncio.sleep(0)
    assert (loop.get_task_factory(), loop.get_exception_handler(), len(asyncio.all_tasks())) == before


async def test_a_cluster_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was renewed when the folder had gone made it again: one of six clusters left one behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    steps: list[str] = []
    close, cleanup = InProcessWorld._close, tempfile.TemporaryDirectory.cleanup

    async def closed(world: InProcessWorld) -> None:
        await close(world)
        steps.append("sessions ended")

    def cleaned(folder: tempfile.TemporaryDirectory[str]) -> None:
        cleanup(folder)
        steps.append("folder deleted")

    monkeypatch.setattr(InProcessWorld, "_close", closed)
    monkeypatch.setattr(tempfile.TemporaryDirectory, "cleanup", cleaned)
    async with cluster(bookies=1):
        assert len(os.listdir(tmp_path)) == 1
    assert (steps, os.listdir(tmp_path)) == (["sessions ended", "folder deleted"], [])


@virtual_time
async def test_a_damaged_copy_is_passed_over_and_no_copy_is_an_error() -> None:
    async with cluster(bookies=2) as c, c.connect() as bk:
        async with bk.create_ledger(2) as writer:
            await writer.append(b"precious bytes")
        for bookie in c.bookies.values():  # from memory to the disk
            await bookie.stop()
            await bookie.start()
        assert c.bookies["bookie-1"].corrupt(b"precious") > 0
        assert c.bookies["bookie-1"].corrupt(b"precious") == 0, "it is there no longer"
        assert await payloads(c, writer.id) == [b"precious bytes"]
        await c.bookies["bookie-2"].stop()  # it has read the bytes
        c.bookies["bookie-2"].corrupt(b"precious")
        await c.bookies["bookie-2"].start()
        with pytest.raises(TallyError):
            await payloads(c, writer.id)


@virtual_time
async def test_a_start_that_fails_says_why() -> None:
    async with cluster(bookies=1) as c, c.connect() as bk:
        writer = await bk.create_ledger(1, write_quorum=1, ack_quorum=1)
        await writer.append(b"precious bytes")
        await writer.append(b"what comes behind: else it is a write that was torn")
        [bookie] = c.bookies.values()
        bookie.kill()
        bookie.corrupt(b"precious")
        with pytest.raises(CorruptRecord):
            await bookie.start()
        assert not bookie.is_running
        writer.abort()


@virtual_time
async def test_a_node_that_is_killed_while_it_starts_does_not_start() -> None:
    async with cluster(bookies=1) as c:
        [bookie] = c.bookies.values()
        bookie.kill()
        starting = asyncio.ensure_future(bookie.start())
        await asyncio.sleep(0)
        bookie.kill()
        with pytest.raises(UsageError, match="killed before it answered"):
            await starting
        await bookie.start()


@virtual_time
async def test_a_delay_is_on_every_connection() -> None:
    loop = asyncio.get_running_loop()

    async def took(writer: tallystick.LedgerWriter) -> float:
        began = loop.time()
        for _ in range(20):
            await writer.append(b"x")
        return loop.time() - began

    async with cluster(bookies=3) as c, c.connect() as bk, bk.create_ledger() as writer:
        quick = await took(writer)
        c.delay(0.5)
        assert await took(writer) > 2 > 10 * quick


@virtual_time
async def test_hours_of_silence_cost_nothing_and_a_reset_is_survived() -> None:
    async with cluster(bookies=3, brokers="1") as c, c.connect() as bk, bk.create_ledger() as writer:
        await writer.append(b"0")
        await asyncio.sleep(3600)
        for bookie in c.bookies.values():
            bookie.reset()
        assert await writer.append(b"1") == 1
        await send(c, b"m")


@both
def test_what_a_client_does_on_a_thread_takes_no_thread_in_virtual_time(run_it: Run) -> None:
    """A loop of virtual time does not wait for threads: hours might pass meanwhile."""

    async def test() -> None:
        async with cluster(bookies=1) as made, made.connect() as bk:
            alone = tallystick.StreamSettings(1, 1, 1, compression="zlib")
            async with bk.open_stream("t/n/persistent/long", settings=alone) as stream:
                await stream.append(bytes(4_000_000))
                names = {thread.name for thread in threading.enumerate()}
                assert ("encode" in names) is not isinstance(asyncio.get_running_loop(), VirtualLoop)
            async with bk.read_stream("t/n/persistent/long") as reader:
                assert [len(message.data) async for message in reader] == [4_000_000]

    run_it(test())


def test_a_seed_decides_what_happens() -> None:
    def events(seed: int) -> list[str]:
        heard: list[str] = []

        async def scenario() -> None:
            def listener(node: str, event: Event) -> None:
                heard.append(f"{asyncio.get_running_loop().time()} {node} {event}")

            made = cluster(bookies=4, seed=seed, listener=listener)
            async with made as c, c.connect() as bk, bk.create_ledger() as writer:
                c.bookies[writer.metadata.ensemble[0]].lose_power()
                await writer.append(b"x")

        run(scenario())
        return heard

    assert events(1) == events(1) != events(2)
    assert any("ensemble changed" in line or "ledger degraded" in line for line in events(1))


def test_what_never_ends_and_errors_that_nobody_waits_for_are_told() -> None:
    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    async def careless() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(Stuck):
        run(never())
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(careless())


@virtual_time
async def test_wrong_arguments() -> None:
    async with cluster(bookies=0) as c:
        with pytest.raises(UsageError, match="no brokers"):
            c.topics()
        with pytest.raises(UsageError, match="clients"):
            c.cut("bookie-1", "clients")
        with pytest.raises(UsageError, match="seconds is a number from 0"):
            c.delay(-1)
    async with cluster(bookies=1) as c:
        for content, why in ((b"", "at least one byte"), ("text", "content is bytes")):
            with pytest.raises(UsageError, match=why):
                c.bookies["bookie-1"].corrupt(content)  # type: ignore[arg-type]
    wrong: list[dict[str, Any]] = [
        {"bookies": -1},
        {"brokers": "many"},
        {"bookies": 190, "brokers": "9+2"},
        {"brokers": 1},
        {"listener": 3},
        {"seed": "a"},
        {"listener": asyncio.sleep},
    ]
    for arguments in wrong:
        with pytest.raises(UsageError):
            await cluster(**arguments)
    with pytest.raises(UsageError, match="at most 9 slaves"):
        await cluster(brokers="1+200")


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "testing.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    assert code.count("assert ") == 1, "the example proves something by itself"
    names: dict[str, Any] = {}
    exec(code, names)
    names["test_a_ledger_outlives_a_bookie"]()
