"""Ledger ids where ZooKeeper's 31 bits end: a session that counts as ZooKeeper does, from wherever a test says."""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from tallystick.bookkeeper.metadata.zk_ids import LedgerIds

TOP = (1 << 31) - 1


class Counting:
    """Folders and the next sequence number in each."""

    def __init__(self, **folders: int) -> None:
        self.folders = {f"/r/{name.replace('_', '-')}": next_number for name, next_number in folders.items()}

    async def call(self, name: str, *arguments: Any, repeatable: bool = True, **options: Any) -> Any:
        return getattr(self, name)(*arguments, **options)

    def exists(self, path: str) -> bool:
        return any(folder == path or folder.startswith(path + "/") for folder in self.folders)

    def get_children(self, path: str) -> list[str]:
        if not self.exists(path):
            raise NoNodeError
        return [folder.removeprefix(path + "/") for folder in self.folders if folder.startswith(path + "/")]

    def create(self, path: str, *, makepath: bool, ephemeral: bool = False, sequence: bool = False) -> str:
        folder = path.rpartition("/")[0] if sequence else path
        if not sequence and folder in self.folders:
            raise NodeExistsError
        number = self.folders.setdefault(folder, 0)
        if not sequence:
            return path
        assert ephemeral
        # A Java int, printed with %010d.
        self.folders[folder] = number + 1 if number < TOP else -(1 << 31)
        return f"{path}{number:010d}"

    def post(self, name: str, *arguments: Any) -> None:
        assert name == "delete"
        for path in arguments:
            self.folders.pop(path, None)


async def test_short_ids_count_from_zero() -> None:
    ids = LedgerIds(Counting(), "/r")
    assert [await ids.next() for _ in range(3)] == [0, 1, 2]


async def test_the_last_short_id_is_followed_by_long_ones() -> None:
    session = Counting(idgen=TOP - 1)
    ids = LedgerIds(session, "/r")
    assert [await ids.next() for _ in range(3)] == [TOP - 1, 1 << 32, (1 << 32) + 1]
    other = LedgerIds(session, "/r")
    assert await other.next() == (1 << 32) + 2, "every client sees that ids are long now"


async def test_a_counter_that_ran_over_gives_no_negative_id() -> None:
    assert await LedgerIds(Counting(idgen=-(1 << 31)), "/r").next() == 1 << 32


async def test_a_full_folder_is_followed_by_the_next_and_old_ones_go() -> None:
    session = Counting()
    session.folders = {f"/r/idgen-long/HOB-{high:010d}": TOP for high in (1, 2, 3)}
    session.folders["/r/idgen-long/other"] = 0
    ids = LedgerIds(session, "/r")
    assert [await ids.next() for _ in range(2)] == [4 << 32, (4 << 32) + 1]
    assert sorted(session.folders) == [
        "/r/idgen-long/HOB-0000000002",
        "/r/idgen-long/HOB-0000000003",
        "/r/idgen-long/HOB-0000000004",
        "/r/idgen-long/other",
    ]
