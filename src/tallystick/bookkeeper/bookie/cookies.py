"""May this bookie use these folders? (``LegacyCookieValidation``, ``Cookie``; facts of the original's start refusals.)

A bookie that says "no such entry" is believed (Q15), so one that lost its data, or took another's place, must not
start. The same cookie lies in the coordination service and in every folder; it is stamped only where neither has one
and no folder holds data. Whatever else differs is refused, with the reason.

Our folders are ``<dir>/tally``, and the cookie names those: an original bookie on our disks, or ours on its, finds a
cookie that differs instead of a valid one over data that it cannot read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire import cookie as format
from tallystick.bookkeeper.wire.cookie import Cookie
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import InvalidCookie, MetadataConflict
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import Disk, read_file

FOLDER = "tally"
FILE = "VERSION"
START_FILE = "start"  # the number of the bookie's last start (``progress.py``)
MARK = "VERSION.rejoining"  # the cookie, until all that it must be true of is on the disk (``rejoin.py``)

_NOT_DATA = frozenset(
    ("LOCK", *(name + end for name in (FILE, MARK, START_FILE) for end in ("", ".new")))  # what comes before data
)
_FOREIGN = "current"  # where an original bookie keeps its data


@dataclass(frozen=True)
class Folder:
    """What lies in one of the bookie's folders."""

    path: str
    cookie: Cookie | None
    has_data: bool


class Stamped(NamedTuple):
    """What was stamped: the folders of a new bookie, or those that came to a bookie."""

    is_new: bool
    joined: Creation | None  # when the service's cookie was made
    added: tuple[str, ...] = ()


def folder_of(configured: str) -> str:
    """Return the folder of everything that is ours under a configured one."""
    return os.path.join(configured, FOLDER)


def journal_of(configured: str) -> str:
    """Return the folder of the segments under a configured journal folder."""
    return os.path.join(folder_of(configured), "journal")


def ledgers_of(configured: str) -> str:
    """Return the folder of the entry logs under a configured ledger folder."""
    return os.path.join(folder_of(configured), "ledgers")


def must_stamp(expected: Cookie, service_cookie: Cookie | None, folders: Sequence[Folder]) -> bool:
    """Return True for new folders of a new bookie, False if everything agrees. Raises InvalidCookie for all else."""
    require_same(expected, service_cookie, folders)
    bare = [folder.path for folder in folders if folder.cookie is None]
    if service_cookie is not None:
        if bare:
            reason = (
                "this bookie is known, but these folders have no cookie: they lost their data or are not its folders. "
                "After the loss of its disk start it with `tally bookie run --rejoin`"
            )
            raise InvalidCookie(reason, bookie=expected.host, folders=",".join(bare))
        return False
    # A stamping that was cut short left cookies but no data in the folders: it is simply done again.
    folders_with_data = [folder.path for folder in folders if folder.has_data]
    if folders_with_data:
        reason = (
            "these folders hold data, but the metadata service has no cookie for this bookie: it was removed from the "
            "cluster, or this is another cluster"
        )
        raise InvalidCookie(reason, bookie=expected.host, folders=",".join(folders_with_data))
    return True


def require_same(expected: Cookie, service_cookie: Cookie | None, folders: Sequence[Folder]) -> None:
    """Raises InvalidCookie for a cookie that is there, and is not this bookie's."""
    for place, cookie in (
        ("the metadata service", service_cookie),
        *((folder.path, folder.cookie) for folder in folders),
    ):
        differences = cookie.differences(expected) if cookie is not None else []
        if differences:
            raise InvalidCookie(
                f"the cookie in {place} is of another bookie, cluster or set of folders ({'; '.join(differences)}): "
                "start it with what its cookie says, or a new bookie with an id and empty folders of its own",
                bookie=expected.host,
            )


def require_superset(expected: Cookie, service_cookie: Cookie, folders: Sequence[Folder]) -> list[Folder]:
    """Return the folders that come to those of a bookie (``allowStorageExpansion``): they are new ledger folders, and
    empty. Raises InvalidCookie where anything else is new, or something is missing, in the original's words."""
    cookies = [("the metadata service", service_cookie)]
    cookies += [(folder.path, folder.cookie) for folder in folders if folder.cookie is not None]
    for place, cookie in cookies:
        rest = replace(cookie, ledger_dirs=expected.ledger_dirs, index_dirs=expected.index_dirs)
        if rest.differences(expected) or not set(cookie.ledger_dirs) <= set(expected.ledger_dirs):
            differences = "; ".join(cookie.differences(expected))
            raise InvalidCookie(f"the cookie in {place} is not matching ({differences})", bookie=expected.host)
    bare = [folder for folder in folders if folder.cookie is None]
    known_dirs = {*expected.journal_dirs, *(path for _, cookie in cookies for path in cookie.ledger_dirs)}
    missing = [folder.path for folder in bare if folder.path in known_dirs]
    with_data = [folder.path for folder in bare if folder.path not in known_dirs and folder.has_data]
    if missing or with_data:
        reason = (
            "either not all local directories have cookies or directories being added newly are not empty: "
            "a new folder is empty, and one that lost its data needs `tally bookie run --rejoin`"
        )
        fields = {"missing": ",".join(missing), "not_empty": ",".join(with_data)}
        raise InvalidCookie(reason, bookie=expected.host, **{name: value for name, value in fields.items() if value})
    return bare


async def expected_cookie(driver: MetadataDriver, bookie: BookieId, configured: StorageFolders) -> Cookie:
    """Return the cookie that the bookie should have. Raises MetadataError."""
    journals, ledgers = (tuple(map(folder_of, folders)) for folders in configured)
    return Cookie(bookie, journals, ledgers, (await driver.sync()).instance)


async def check_cookies(
    driver: MetadataDriver,
    disk: Disk,
    bookie: BookieId,
    configured: StorageFolders,
    *,
    unused: Collection[str] = (),
    expands: bool = False,
    stamping: Callable[[Sequence[str]], None] = lambda added: None,
) -> Stamped:
    """Compare the cookies, and stamp if all is new, or if what is new ``expands`` the storage. The folders exist and
    are locked, but for those that are ``unused``; ``stamping`` is called before the service gets a cookie, with the
    folders that come to those of a bookie, none for a new one.

    What the metadata has is read behind a ``sync``: a server that lags may have no cookie of a bookie that was just
    stamped, or the identity of a former cluster. Raises InvalidCookie, MetadataError.
    """
    expected = await expected_cookie(driver, bookie, configured)
    record = await driver.read_cookie(bookie)
    service_cookie = format.decode(record.value, where="the metadata service") if record is not None else None
    folders = [
        look(disk, path) for path in dict.fromkeys((*configured.journals, *configured.ledgers)) if path not in unused
    ]
    if record is not None and expands and service_cookie is not None:
        added = require_superset(expected, service_cookie, folders)
        if service_cookie != expected or added:
            stamping([folder.path for folder in added])  # they are empty until they have a cookie
            _stamp(disk, expected, folders)
            await driver.write_cookie(bookie, format.encode(expected), record.version)
        return Stamped(False, record.creation, tuple(folder.path for folder in added))
    if not must_stamp(expected, service_cookie, folders):
        return Stamped(False, record.creation if record is not None else None)
    _stamp(disk, expected, folders)
    stamping(())
    # Last: once the service has the cookie, folders without one are taken for lost data.
    await driver.write_cookie(bookie, format.encode(expected), None)
    joined = await driver.bookie_creation(bookie)
    if joined is None:
        raise MetadataConflict("it was taken out of the cluster meanwhile", bookie=bookie)
    return Stamped(True, joined)


def _stamp(disk: Disk, cookie: Cookie, folders: Sequence[Folder]) -> None:
    for folder in folders:
        write_atomic(disk, os.path.join(folder.path, FILE), format.encode(cookie))


def stored_instance(disk: Disk, folder: str) -> str:
    """Return the cluster that the cookie in a checked folder names. Raises StorageError, InvalidCookie."""
    file = os.path.join(folder_of(folder), FILE)
    instance = format.decode(read_file(disk, file), where=file).instance_id
    if instance is None:
        raise InvalidCookie("the cookie names no cluster", file=file)
    return instance


def look(disk: Disk, configured: str) -> Folder:
    """Return what lies in the folder under a configured one. Raises StorageError, InvalidCookie."""
    path = folder_of(configured)
    file = os.path.join(path, FILE)
    cookie = format.decode(read_file(disk, file), where=file) if disk.exists(file) else None
    has_data = bool(set(disk.listdir(path)) - _NOT_DATA) or disk.exists(os.path.join(configured, _FOREIGN))
    return Folder(path, cookie, has_data)
