"""How far a disk is, in the metadata and in the folders."""

from __future__ import annotations

import random

import pytest

from support.bookies import Home
from tallystick.bookkeeper.bookie.progress import Progress, ProgressRecord
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.errors import (
    CorruptRecord,
    DiskFull,
    InvalidCookie,
    MetadataConflict,
    MetadataError,
    MetadataUnavailable,
)
from tallystick.runtime.events import Event, Events
from tallystick.runtime.folders import make_folder
from tallystick.sim.disk import SimDisk

FOLDERS = ("/journal", "/ledgers")


class Place:
    """One bookie's folders, and the metadata; ``read`` as each start does."""

    def __init__(self, home: Home) -> None:
        self.disk, self.events = SimDisk(random.Random(1)), list[Event]()
        self.driver = ClusterMetadata(MemoryStore(home.cluster))
        for folder in FOLDERS:
            make_folder(self.disk, f"{folder}/tally")

    async def read(self) -> ProgressRecord:
        return await ProgressRecord.read(self.driver, self.disk, FOLDERS, "b0", Events(self.events.append))

    async def known(self) -> Progress:
        node = await self.driver.read_progress("b0")
        assert node is not None
        return Progress.decode(node.value)


@pytest.fixture
def place(home: Home) -> Place:
    return Place(home)


def test_the_node_is_lines_and_later_versions_may_have_more() -> None:
    assert Progress(3, (70,)).encode() == b"start: 3\nposition: 70\n"
    assert Progress.decode(b"start: 3\nposition: 70\ndisk: ssd\n") == Progress(3, (70,))
    for damaged in (b"", b"start: 3\n", b"start: x\nposition: 70\n"):
        with pytest.raises(MetadataError, match="cannot be read"):
            Progress.decode(damaged)


@pytest.mark.rule("Q15")
async def test_q15_a_disk_of_an_earlier_start_or_with_a_shorter_journal_is_refused(place: Place) -> None:
    first = await place.read()
    first.check()
    await first.begin((0,))
    assert await place.known() == Progress(1, (0,))
    await first.say((20,))
    await first.say((19,))
    assert await place.known() == Progress(1, (20,)), "nothing is taken back"
    second = await place.read()
    second.check((20,))
    second.check((21,))
    with pytest.raises(InvalidCookie, match="older than what the bookie acknowledged") as refused:
        second.check((19,))
    assert refused.value.fields == {"bookie": "b0", "starts": "1 of 1", "position": "19 of 20"}
    await second.begin((21,))
    assert await place.known() == Progress(2, (21,))


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("folder", FOLDERS)
async def test_q15_a_folder_without_its_number_is_older(place: Place, folder: str) -> None:
    await (await place.read()).begin((21,))
    path = f"{folder}/tally/start"
    place.disk.unlink(path)
    with pytest.raises(InvalidCookie, match=r"--rejoin.*starts=0 of 1"):
        (await place.read()).check()
    file = place.disk.open(path, create=True)
    file.write([b"2 1b97c1b5\n"], 0)
    file.close()
    with pytest.raises(CorruptRecord, match=f"the number of the last start is damaged \\(path={path}"):
        (await place.read()).check()
    await (await place.read()).begin((0,))
    (await place.read()).check((0,))


async def test_a_crash_between_disk_and_metadata_is_no_older_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await place.read()).begin((5,))

    async def nowhere(*args: object) -> None:
        raise MetadataUnavailable("the service is away")

    with monkeypatch.context() as patch:
        patch.setattr(place.driver, "write_progress", nowhere)
        with pytest.raises(MetadataUnavailable):
            await (await place.read()).begin((6,))
    assert await place.known() == Progress(1, (5,))
    record = await place.read()
    record.check()
    record.check((6,))
    await record.begin((6,))
    assert await place.known() == Progress(3, (6,))
    with monkeypatch.context() as patch:
        patch.setattr(place.driver, "write_progress", nowhere)
        await record.say((9,))
    assert [event.kind for event in place.events] == ["progress not told"]
    await record.say((10,))
    assert await place.known() == Progress(3, (10,)), "the next time makes up for it"


async def test_a_full_disk_starts_but_never_lowers_what_is_known(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await place.read()).begin((5,))

    def full(*args: object) -> None:
        raise DiskFull("no space left")

    monkeypatch.setattr("tallystick.bookkeeper.bookie.progress.write_atomic", full)
    record = await place.read()
    record.check((7,))
    await record.begin((7,))
    assert await place.known() == Progress(1, (7,))
    assert [event.kind for event in place.events] == ["start not counted"]
    place.disk.unlink("/journal/tally/start")
    with pytest.raises(DiskFull):
        await (await place.read()).begin((0,))
    assert await place.known() == Progress(1, (7,))


@pytest.mark.rule("Q15")
async def test_q15_a_rejoin_is_counted_or_there_is_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk that was lost has the same number and a longer journal than what came in its place: if it is found, the
    number alone tells that it lacks what was acknowledged since."""
    await (await place.read()).begin((5,))
    record = await place.read()

    def full(*args: object) -> None:
        raise DiskFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("tallystick.bookkeeper.bookie.progress.write_atomic", full)
        with pytest.raises(DiskFull):
            await record.begin((0,), rejoins=True)
    assert await place.known() == Progress(1, (5,))
    await record.begin((0,), rejoins=True)
    assert Progress(1, (6,)).is_behind(await place.known())


async def test_of_two_processes_on_copies_of_a_disk_one_goes_on(place: Place) -> None:
    await (await place.read()).begin((5,))
    one, other = await place.read(), await place.read()
    await one.begin((5,))
    with pytest.raises(MetadataConflict, match="on a copy of its disk"):
        await other.begin((6,))
    await (await place.read()).begin((5,))
    with pytest.raises(MetadataConflict, match="on a copy of its disk"):
        await one.say((9,))


async def test_a_change_whose_answer_was_lost_is_no_other_process(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, write = await place.read(), place.driver.write_progress

    async def lost(*args: object) -> None:
        await write(*args)  # type: ignore[arg-type]
        raise MetadataConflict("it was made")

    with monkeypatch.context() as patch:
        patch.setattr(place.driver, "write_progress", lost)
        with pytest.raises(MetadataConflict, match="it was made"):
            await record.begin((5,))
    again = await place.read()
    await again.begin((6,))
    with monkeypatch.context() as patch:
        patch.setattr(place.driver, "write_progress", lost)
        with pytest.raises(MetadataConflict, match="it was made"):
            await again.say((8,))
    await again.say((9,))
    assert await place.known() == Progress(2, (9,))
