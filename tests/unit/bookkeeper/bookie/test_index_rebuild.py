"""An index file that is damaged is made anew from its log, and nothing that was held is denied meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from support.bookies import Home, adds, talking
from support.stores import SMALL, Store
from tallystick.bookkeeper.bookie.log_index import load_index
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.sim.disk import SimDisk

LEDGERS = {3: range(40), 5: range(0, 90, 3), 7: range(200), 8: range(1), 9: range(5000, 5100), 12: range(30)}
LIMBO = Code.UNKNOWN_LEDGER_STATE


def filled(disk: SimDisk | None = None) -> Store:
    """A closed storage with one log of some hundred chunks."""
    store = Store(disk or SimDisk(random.Random(1)), replace(SMALL, chunk_bytes=512))
    for ledger, entries in LEDGERS.items():
        store.fill(ledger, entries, b"p" * 100)
    store.fill(20, [0], b"l" * 70_000)
    store.storage.close()
    return store


def path_of(store: Store, ending: str) -> str:
    (name,) = (name for name in store.disk.listdir(store.ledger_dir) if name.endswith(ending))
    return f"{store.ledger_dir}/{name}"


def change(store: Store, path: str, edit: Callable[[bytearray], object]) -> None:
    file = store.disk.open(path)
    data = bytearray(file.read(file.size(), 0))
    edit(data)
    file.write([bytes(data)], 0)
    file.truncate(len(data))
    file.sync()
    file.close()


def held() -> Iterator[tuple[int, int, bytes]]:
    for ledger, entries in LEDGERS.items():
        yield from ((ledger, entry, b"p" * 100) for entry in entries)
    yield 20, 0, b"l" * 70_000


def code_of(store: Store, ledger: int, entry: int) -> Code:
    """The code of a response to a read."""
    return store.storage.limbo.code(ledger, store.storage.read(ledger, entry)[0])


def require_no_denial(store: Store) -> None:
    """Each entry is there, or its ledger is in limbo."""
    for ledger, entry, _ in held():
        assert code_of(store, ledger, entry) not in NO_CODES, (ledger, entry)


def flip(at: int) -> Callable[[bytearray], object]:
    return lambda data: data.__setitem__(at, data[at] ^ 0x10)


def replaced(at: int, data: bytes, stop: int | None = None) -> Callable[[bytearray], object]:
    """Bytes in the place of others, as many of them unless ``stop`` says where they end."""
    return lambda content: content.__setitem__(slice(at, at + len(data) if stop is None else stop), data)


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("kind", ["flip", "cut", "zeros", "random", "no count", "gone"])
def test_q15_with_its_log_whole_no_entry_is_lost(kind: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(25):
        store = filled()
        path = path_of(store, ".index")
        size = store.disk.size(path) or 0
        at = chance.randrange(8, size)  # another version's number is refused as that
        match kind:
            case "flip":
                change(store, path, flip(at))
            case "cut":
                change(store, path, replaced(at, b"", size))
            case "zeros":
                change(store, path, replaced(at, bytes(min(512, size - at))))
            case "random":
                change(store, path, replaced(at, chance.randbytes(size - at)))
            case "no count":
                change(store, path, replaced(32, bytes(4)))  # of the chunks
            case _:
                store.disk.unlink(path)
        store.open()
        for ledger, entry, payload in held():
            assert store.has(ledger, entry, payload), (at, ledger, entry)
        assert store.storage.rebuilt_indexes and (kind != "gone" or len(store.storage.limbo) == 7)
        store.restart()
        assert not store.storage.rebuilt_indexes, "the checkpoint of an orderly stop wrote it"
        for ledger, entry, payload in held():
            assert store.has(ledger, entry, payload)


@pytest.mark.rule("Q15")
def test_q15_with_log_and_index_damaged_nothing_that_was_held_is_denied() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance, limbos = random.Random(seed), 0
    for _ in range(60):
        store = filled()
        for ending in (".log", ".index"):
            path = path_of(store, ending)
            size = store.disk.size(path) or 0
            at = chance.randrange(32, size)
            wiped = replaced(at, bytes(min(700, size - at)))
            change(store, path, flip(at) if chance.random() < 0.5 else wiped)
        store.open()
        require_no_denial(store)
        limbos += bool(store.storage.limbo)
        store.power_loss()
        require_no_denial(store)
        store.restart()
        require_no_denial(store)
        assert not store.storage.rebuilt_indexes
    assert limbos, "some damage left ledgers in doubt"


def test_a_frame_that_swallows_the_next_one_leaves_its_ledger_in_doubt() -> None:
    """The length of a frame is damaged to that of two: what follows makes sense, and one entry is not found."""
    store = filled()
    log, pieces = load_index(store.disk, store.ledger_dir, 1)
    piece = next(piece for piece in pieces if piece.ledger == 7)
    first, second = (location & ((1 << 40) - 1) for location in piece.locations[50:52])
    change(
        store,
        path_of(store, ".log"),
        replaced(first, (2 * (second - first) - 4).to_bytes(4, "big")),
    )
    chunk = log.chunk_of(first)
    change(store, path_of(store, ".index"), flip(48 + 8 * len(log.chunks) + 4 * chunk))
    store.open()
    assert 7 in store.storage.limbo and code_of(store, 7, 51) == LIMBO
    assert not {3, 12, 20} & set(store.storage.limbo), "between proven chunks alone"


@pytest.mark.parametrize("becomes", ["nonsense", "one of a later ledger"])
def test_a_damaged_frame_takes_no_entry_of_other_places_with_it(becomes: str) -> None:
    """What comes in its chunk behind it is not found; all else is read, and checked, as before."""
    store = filled()
    log, pieces = load_index(store.disk, store.ledger_dir, 1)
    piece = next(piece for piece in pieces if piece.ledger == 7)
    places = [location & ((1 << 40) - 1) for location in piece.locations]
    at, end = places[50], log.chunk_end(log.chunk_of(places[50]))
    ids = (900).to_bytes(8, "big") + bytes(8)
    damage = replaced(at, bytes(4)) if becomes == "nonsense" else replaced(at + 12, ids + ids)
    change(store, path_of(store, ".log"), damage)
    change(store, path_of(store, ".index"), flip(-12))
    for _ in range(2):  # from what was rebuilt, and from the file that was made of it
        store.restart()
        assert 7 in store.storage.limbo
        for ledger, entry, payload in held():
            if ledger != 7 or not at <= places[entry] < end:
                assert store.has(ledger, entry, payload), (ledger, entry)
        assert code_of(store, 7, 50) == LIMBO


def test_a_damaged_place_of_an_entry_leaves_no_ledger_in_doubt() -> None:
    store = filled()
    change(store, path_of(store, ".index"), flip(-12))
    store.open()
    assert store.storage.rebuilt_indexes and not store.storage.limbo
    assert store.has(20, 0, b"l" * 70_000)


def test_a_crash_at_each_step_denies_nothing() -> None:
    for step in range(1, 400):
        store = filled(SimDisk(random.Random(step)))
        change(store, path_of(store, ".index"), lambda data: data.__delitem__(slice(100, None)))
        before, store.disk.crash_at = store.disk.operations, store.disk.operations + step
        try:
            store.open()
            store.storage.checkpoints.run(store.storage.checkpoints.begin())
        except BaseException as crash:
            assert type(crash).__name__ == "Crashed"
        else:
            assert store.disk.operations - before < step and step > 5
            break
        store.power_loss()
        require_no_denial(store)
        assert len(store.storage.limbo) == 7 or not store.storage.rebuilt_indexes
    else:
        pytest.fail("no step was the last one")
    assert len(store.storage.limbo) == 7 and not store.storage.rebuilt_indexes


def test_who_left_limbo_before_the_damage_is_in_it_again() -> None:
    store = Store()
    store.fill(5, range(10))
    store.storage.limbo.enter((5,))
    store.storage.close()
    store.open().filled((5,))
    store.commit()
    assert store.power_loss().limbo.copy() == ()
    store.disk.unlink(path_of(store, ".index"))
    checkpoints = store.power_loss().checkpoints
    assert store.storage.limbo.copy() == (5,)
    checkpoints.run(checkpoints.begin_collect((), ()))  # a state beside a journal that says that it left
    assert store.power_loss().limbo.copy() == (5,)
    assert store.restart().limbo.copy() == (5,) and store.has(5, 9)


def test_a_full_disk_leaves_it_for_the_next_start() -> None:
    store = filled()
    store.disk.unlink(path_of(store, ".index"))
    store.open()

    def fault(operation: str, path: str) -> StorageError | None:
        return DiskFull("simulated") if operation == "write" and ".index" in path else None

    store.disk.fault = fault
    store.storage.close()
    store.disk.fault = None
    assert store.open().rebuilt_indexes and len(store.storage.limbo) == 7
    require_no_denial(store)


@pytest.mark.parametrize("at", [3, 15])
def test_a_log_that_nothing_proves_is_refused(at: int) -> None:
    """It begins as no log does, or as another one."""
    store = filled()
    store.disk.unlink(path_of(store, ".index"))
    change(store, path_of(store, ".log"), flip(at))
    with pytest.raises(CorruptRecord, match="an entry log and its index are damaged"):
        store.open()


async def test_a_bookie_tells_of_it_and_mends_its_file(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(5, range(3))) == Code.OK
    (path,) = home.path.rglob("*.index")
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    async with home.running() as bookie:
        assert path.read_bytes() == data and not bookie.storage.rebuilt_indexes
    (event,) = home.heard("index of an entry log rebuilt")
    assert event.fields["entries"] == 3 and event.fields["limbo"] == 0
