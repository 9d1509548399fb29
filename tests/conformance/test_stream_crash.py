"""The process that owns a stream is killed, or paused for longer than its lease: whoever waited for it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

import tallystick
from support.fake_bookie import FakeBookie
from support.owner_process import owner_process
from support.stream_owner import PRODUCER, SETTINGS
from tallystick.bookkeeper.stream.client import BookKeeper

if TYPE_CHECKING:
    from conformance.conftest import Place

# Without memory://, which ends with its process.
pytestmark = pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.zookeeper)], indirect=True
)

NAME = "tenant/ns/persistent/topic"
LEASE_S = 1.0


@pytest.fixture
async def bk(bookies: list[FakeBookie], cluster: Place) -> AsyncIterator[BookKeeper]:
    async with tallystick.connect(cluster.uri) as client:
        yield client


@pytest.mark.rule("Q19")
@pytest.mark.parametrize("end", ["killed", "paused"])
async def test_q19_who_waited_for_a_stream_goes_on_after_its_owner(bk: BookKeeper, cluster: Place, end: str) -> None:
    """What was acknowledged is there, once and in order; what is repeated is known; the one before appends no more."""
    async with owner_process(cluster.uri, NAME, lease_s=LEASE_S) as owner:
        await owner.appended(30)
        if end == "paused":
            owner.pause()
        else:
            await owner.kill()
        async with asyncio.timeout(30):
            stream = await bk.open_stream(NAME, wait_s=60.0, settings=SETTINGS)
        if end == "paused":
            owner.resume()
            await owner.ended()
            assert owner.error == "StreamFenced"
    stored = owner.positions
    assert await stream.append(b"repeated", producer=PRODUCER, sequence=len(stored) - 1) == stored[-1]
    await stream.append(b"after it")
    await stream.close()
    async with bk.read_stream(NAME) as reader:
        read = [(message.position, message.data) async for message in reader.read()]
    *numbers, (_, last) = read
    assert numbers[: len(stored)] == [(position, b"%d" % number) for number, position in enumerate(stored)]
    assert [data for _, data in numbers] == [b"%d" % number for number in range(len(numbers))] and last == b"after it"
    assert len(numbers) <= len(stored) + 1, "the owner had one append under way"
