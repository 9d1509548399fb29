"""The folders of a bookie's entry logs: which there are, which logs are in which, and the copy of the state in each.

Each folder in use has a copy of the state file, so that the loss of any one of them loses no fence and no place of a
ledger. A step of a checkpoint is done when all copies are written, and only then the journal may forget and files are
deleted: a start from any copy finds what that one names. A folder that fails gets no copy any more; that it failed is
first in the copies of the others, with all its ledgers in limbo.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tallystick.bookkeeper.bookie.places import NO_FOLDER, Layout, LedgerFolder
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import State
from tallystick.bookkeeper.bookie.state_file import StateFile
from tallystick.errors import DiskFull, StorageError
from tallystick.runtime.disk import Disk
from tallystick.runtime.rng import Random


class FolderFailure(StorageError):
    """A ledger folder failed, and the bookie has others."""

    def __init__(self, folder: LedgerFolder, cause: StorageError) -> None:
        super().__init__(f"a ledger folder failed: {cause.message}", folder=folder.path)
        self.number, self.cause = folder.number, cause


class LedgerFolders:
    """The ledger folders in use, and those that failed.

    The loop chooses folders; a thread writes the state. ``record`` says whether the state has them: not of a bookie
    that only ever had one.
    """

    def __init__(
        self,
        disk: Disk,
        folders: Sequence[LedgerFolder],
        settings: StorageSettings,
        *,
        log_folders: Mapping[int, int],
        layout: Layout,
        record: bool,
        random: Random,
    ) -> None:
        self._random = random
        self._disk, self._spare_bytes, self._record = disk, settings.state_spare_bytes, record
        self._folders = {folder.number: folder for folder in folders}
        self._log_folders = dict(log_folders)
        self._state_number, self.limbo_era = layout.number, layout.limbo_era
        self._files = {folder.number: self._state_file(folder) for folder in folders if not folder.is_failed}
        self.full: set[int] = set()  # they take nothing new

    def _state_file(self, folder: LedgerFolder) -> StateFile:
        return StateFile(self._disk, folder.path, self._spare_bytes)

    @property
    def in_use(self) -> list[int]:
        return list(self._files)

    @property
    def failed(self) -> list[LedgerFolder]:
        return [folder for folder in self._folders.values() if folder.is_failed]

    def path(self, number: int) -> str:
        return self._folders[number].path

    def numbers(self) -> dict[str, int]:
        """Return the numbers of the folders in use, by path."""
        return {self._folders[number].path: number for number in self._files}

    def folder_of(self, log_id: int) -> int:
        return self._log_folders.get(log_id, 0)

    def directory(self, log_id: int) -> str:
        """Return the folder that a log is in, or will be."""
        return self._folders[self.folder_of(log_id)].path

    def put(self, log_id: int, number: int) -> None:
        """A log is, or will be, in this folder."""
        if number:
            self._log_folders[log_id] = number

    def forget(self, log_id: int) -> None:
        """A log is gone, with its files."""
        self._log_folders.pop(log_id, None)

    def chooser(self) -> Callable[[], int]:
        """Return what gives the folder of a new ledger, and of the next one, by the room that each has now. Of full
        ones the first."""
        numbers = [number for number in self._files if number not in self.full] or self.in_use
        free = [self._free(number) for number in numbers] if len(numbers) > 1 else []
        total = sum(free)

        def choose() -> int:
            if not free:
                return numbers[0]
            at = self._random.random() * total
            for number, share in zip(numbers, free, strict=True):
                at -= share
                if at < 0:
                    return number
            return numbers[-1]

        return choose

    def _free(self, number: int) -> int:
        try:
            return self._disk.usage(self._folders[number].path).free
        except StorageError:
            return 0

    def set_full(self, number: int, is_full: bool) -> None:
        """Let a folder take nothing new, or again."""
        (self.full.add if is_full else self.full.discard)(number)

    def takes(self, number: int) -> bool:
        """Return whether entries of a ledger of this folder still go there."""
        return number != NO_FOLDER and number in self._files and (number not in self.full or self._are_all_full)

    @property
    def _are_all_full(self) -> bool:
        return self.full.issuperset(self._files)

    def fail(self, number: int) -> None:
        """Use a folder no longer. The next state says so."""
        self._folders[number] = self._folders[number]._replace(is_failed=True)
        del self._files[number]
        self.full.discard(number)
        self.limbo_era += 1

    @property
    def layout(self) -> Layout:
        """What the next state says of them."""
        return Layout(0, self.limbo_era, tuple(self._folders.values())) if self._record else Layout()

    @contextlib.contextmanager
    def watching(self, number: int) -> Iterator[None]:
        """Tell a failure of this folder from others, unless it is the only one. Raises FolderFailure, DiskFull."""
        try:
            yield
        except DiskFull:
            if len(self._files) > 1:
                self.full.add(number)
            raise
        except StorageError as error:
            if len(self._files) > 1:
                raise FolderFailure(self._folders[number], error) from error
            raise

    # Thread.

    def write(self, state: State) -> None:
        """Replace the state in all folders in use; it holds when that is done. Raises as ``watching``."""
        if self._record:
            self._state_number += 1
            state = replace(state, layout=state.layout._replace(number=self._state_number))
        data = state.encode()
        for number, file in tuple(self._files.items()):
            with self.watching(number):
                file.write(data)

    def catch_up(self, state: State, lost: Collection[int]) -> None:
        """Give the state that holds to all folders, but for those that lost what they had, before anything is answered
        or freed by it: the loss of the newest copy would take that back."""
        self._state_number += 1
        data = replace(state, layout=state.layout._replace(number=self._state_number)).encode()
        for number, file in self._files.items():
            if number not in lost:
                file.write(data)

    def reserve(self) -> None:
        """Keep room for the next state in each folder."""
        for file in tuple(self._files.values()):
            file.reserve()
