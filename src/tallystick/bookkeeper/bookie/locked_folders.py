"""The folders that a bookie has for itself while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.cookies import folder_of, ledgers_of
from tallystick.bookkeeper.bookie.restart import failed_folders
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk
from tallystick.runtime.folders import make_folder


@dataclass(frozen=True)
class LockedFolders:
    """``unusable`` are the ledger folders that failed; the bookie goes on without them."""

    in_use: tuple[str, ...]
    unusable: tuple[str, ...]


def lock_folders(
    disk: Disk,
    settings: BookieSettings,
    storage_settings: StorageSettings,
    locked: Callable[[Callable[[], None]], object],
    *,
    rejoin: bool,
) -> LockedFolders:
    """Lock the folders, but for ledger folders that failed before. ``locked`` hears how each lock is released.

    Raises StorageError for a folder that fails now, unless the bookie rejoins without it.
    """
    errors, folders = dict[str, StorageError](), list[str]()
    for folder in settings.folders:
        try:
            make_folder(disk, folder_of(folder))
            locked(disk.lock(folder_of(folder)).release)
            folders.append(folder)
        except StorageError as error:
            errors[folder] = error
    sound = [ledgers_of(folder) for folder in settings.ledger_dirs if folder not in errors]
    failed = failed_folders(disk, sound, storage_settings)
    for folder, reason in errors.items():
        if folder in settings.journal_dirs or not (sound and (rejoin or ledgers_of(folder) in failed)):
            raise reason
    unusable = tuple(
        folder for folder in settings.ledger_dirs if folder in errors or (ledgers_of(folder) in failed and not rejoin)
    )
    return LockedFolders(tuple(folder for folder in folders if folder not in unusable), unusable)
