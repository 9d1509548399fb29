"""What a bookie fetches for its own copies: with its keys, in one budget of the process, in short turns."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

import tallystick
from support.bookies import SMALL
from support.certificates import secret_file
from support.clocks import ManualClock
from support.keyed import USER, KeyFiles
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.repair import fill as fill_module
from tallystick.bookkeeper.repair import mend as mend_module
from tallystick.bookkeeper.repair.autorecovery import AutoRecovery
from tallystick.bookkeeper.repair.fill import fill
from tallystick.bookkeeper.repair.mend import mend
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.runtime.machine import this_machine
from tallystick.runtime.pace import Pace

pytestmark = pytest.mark.real_time


@pytest.fixture
async def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.setattr(fill_module, "LEAST_PAUSE_S", 0.1)
    monkeypatch.setattr(mend_module, "LEAST_PAUSE_S", 0.1)
    driver = ClusterMetadata(MemoryStore(tmp_path.name))
    await driver.init_cluster()
    yield f"memory://{tmp_path.name}"
    await driver.close()


async def started(uri: str, home: Path, security: SecuritySettings | None = None, *, rejoin: bool = False) -> Bookie:
    settings = BookieSettings(
        uri, (str(home),), (str(home),), port=0, bookie_id=home.name, security=security or SecuritySettings()
    )
    return await start_bookie(settings, this_machine(), SMALL, fill=fill, mend=mend, rejoin=rejoin)


async def written(uri: str, settings: ClientSettings, payloads: Sequence[bytes]) -> int:
    async with tallystick.connect(uri, settings=settings) as bk:
        async with bk.create_ledger(2, write_quorum=2, ack_quorum=2) as writer:
            await writer.append_batch(payloads)
        return writer.id


@pytest.mark.rule("N5")
async def test_a_bookie_that_lost_its_disk_fetches_from_those_that_ask_for_tls_and_a_key(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = KeyFiles.make(tmp_path / "keys")
    security = keys.bookie_settings(mechanisms=("sasl", "scram-sha-256"), users_file=keys.users())
    client = keys.client_settings()
    lines = {"tlsTrustStore": client.tls_trust, "user": USER, "passwordFile": client.password_file}
    secret_file(tmp_path / "security.toml", "[security]\n" + "".join(f"{k} = {v!r}\n" for k, v in lines.items()))
    names = (tmp_path / "b0", tmp_path / "b1")
    bookies = [await started(uri, name, security) for name in names]
    try:
        ledger = await written(uri, ClientSettings(security=client), [b"%d" % number for number in range(20)])
        await bookies[0].stop()
        shutil.rmtree(names[0])
        bookies[0] = await started(uri, names[0], security, rejoin=True)
        await asyncio.sleep(0.5)
        assert bookies[0].storage.limbo, "without its keys nobody gives it anything"
        await bookies[0].stop()
        monkeypatch.setenv("TALLY_SECURITY", str(tmp_path / "security.toml"))
        bookies[0] = await started(uri, names[0], security)
        await until(lambda: not bookies[0].storage.limbo)
        assert bookies[0].counts.filled_entries == 20
        bookies[0].storage.damages.add(ledger, 3)  # and so does what mends
        await until(lambda: not bookies[0].storage.damages)
        assert {row["identity"] for row in bookies[1].authentication()} == {f"user {USER}"}
        recovery = await AutoRecovery.start(uri, "worker", RepairSettings(), this_machine())
        try:
            assert recovery.replicator._context.settings.security is not None
        finally:
            await recovery.close()
    finally:
        for bookie in bookies:
            await bookie.stop()


async def test_all_that_a_process_fetches_for_repair_counts_in_one_budget(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, slept = ManualClock(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("tallystick.runtime.pace.asyncio.sleep", sleep)
    shared = Pace(clock, 100)
    replicator, others = Pace(clock, 1000, within=shared), shared
    await others.spend(100)
    await replicator.spend(100)
    assert slept == [1.0, 2.0, 0.1], "the replicator waits behind what was fetched for limbo"
    recovery = await AutoRecovery.start(uri, "worker", RepairSettings(), this_machine(), within=shared)
    try:
        assert recovery.replicator._pace._within is shared
    finally:
        await recovery.close()


async def test_while_much_is_fetched_no_turn_of_the_loop_checks_or_stores_more_than_a_batch(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest of 1 MiB takes a millisecond or two, and so does storing a batch: a turn stays far below 50 ms."""
    names = (tmp_path / "b0", tmp_path / "b1")
    bookies = [await started(uri, name) for name in names]
    try:
        await written(uri, ClientSettings(), [bytes(300_000) for _ in range(20)] + [bytes(10)] * 2000)
        await bookies[0].stop()
        shutil.rmtree(names[0])
        spent, most_bytes, most_entries = list[int](), 0, 0
        spend = Pace.spend

        async def spending(self: Pace, size: int) -> None:
            spent.append(size)
            await spend(self, size)

        monkeypatch.setattr(Pace, "spend", spending)
        bookies[0] = await started(uri, names[0], rejoin=True)
        copies = bookies[0].committer
        hold = copies.hold

        def holding(*args: object, **named: object) -> None:
            nonlocal most_bytes, most_entries
            most_bytes = max(most_bytes, bookies[0].storage.staged_bytes)
            most_entries += 1
            hold(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(copies, "hold", holding)
        await until(lambda: not bookies[0].storage.limbo, seconds=60)
        assert bookies[0].counts.filled_entries == 2020
        assert max(spent) <= 2 * 1024 * 1024 and sum(spent) >= 20 * 300_000, "all of it is paid for"
        assert most_bytes <= 2 * 1024 * 1024 and most_entries >= 2020 / fill_module.MOST_READS
    finally:
        for bookie in bookies:
            await bookie.stop()
