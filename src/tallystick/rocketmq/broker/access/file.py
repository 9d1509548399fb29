"""``tallyAccess.json``: the users of a broker, saved at each change, and read again when an operator changed the file.

Nobody but the broker's account may read it. What is in it that cannot be read is told once and changes nothing: the
users stay those of before, and a start with it is refused. A slave writes its master's users, and reads its file at the
start alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial

from tallystick.errors import RemoteProtocolError, StorageError, TallyError, UsageError
from tallystick.rocketmq.broker.access.table import AccessTable, User, read_table
from tallystick.rocketmq.broker.config_files import ACCESS_FILE, ConfigFiles
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.access import UserTable
from tallystick.rocketmq.wire.signature import Credentials
from tallystick.runtime.disk import Disk, read_file
from tallystick.runtime.events import Events
from tallystick.runtime.worker import Worker

LOOK_S = 2.0  # how often a master looks whether the file was changed
MAX_FILE_BYTES = 64 * 1024 * 1024


class AccessFile:
    """The file of ``table``, as a ``Saver`` sees it. Made, used and changed on the loop. Raises StorageError,
    CorruptRecord."""

    def __init__(self, files: ConfigFiles, disk: Disk, standing: Standing, events: Events, *, is_on: bool) -> None:
        """``is_on``: whether the file is read at all."""
        self._disk, self._standing, self._events = disk, standing, events
        self._path = os.path.join(files.directory, ACCESS_FILE)
        self.changed: Callable[[], None] = lambda: None
        self._is_awaited = False
        self._digest = hashlib.sha256()  # of the text that is being saved
        self._known_digest = b""  # of the file's content as it was saved or read
        self._refused_digest = b""  # of a content that could not be read, which was told
        self.table = AccessTable(self._change)
        users = files.load(ACCESS_FILE, _read, stands_in=False) if is_on else None
        if users is not None:
            self._known_digest = hashlib.sha256(read_file(disk, self._path)).digest()
            self.table.replace(users)
            self._is_awaited = False

    def ensure(self, *credentials: Credentials) -> None:
        """Make these super users, as far as there are none of their names."""
        for each in credentials:
            if each.access_key not in self.table.users:
                self.table.put(User(each.access_key, (each.secret_key,), is_super=True))

    async def watch(self, worker: Worker) -> None:
        """Read the file again whenever somebody else changed it; runs until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._standing.is_slave or self._is_awaited:
                continue
            before, known_digest = self.table.changes, self._known_digest
            try:
                content = await worker.run(self._content)
                digest = hashlib.sha256(content).digest()
                is_new = digest not in (self._known_digest, self._refused_digest)
                if not is_new or self.table.changes != before or self._known_digest != known_digest:
                    continue  # the same, or what was changed here meanwhile is to be saved
                users = await worker.run(partial(_read, content))
            except TallyError as error:
                self._refuse(b"" if isinstance(error, StorageError) else digest, error)
                continue
            if self.table.changes == before:
                self._take(users, digest)

    def _take(self, users: dict[str, User], digest: bytes) -> None:
        self._known_digest, self._refused_digest = digest, b""
        if self.table.replace(users):
            self._is_awaited = False  # the file has it
            self._events.emit("access changed", by="", peer="", what=f"the file was read again: {len(users)} users")

    def _refuse(self, digest: bytes, error: Exception) -> None:
        if digest != self._refused_digest or not digest:
            self._refused_digest = digest
            self._events.emit("access file refused", path=self._path, reason=str(error))

    def _content(self) -> bytes:
        file = self._disk.open(self._path)
        try:
            if file.size() > MAX_FILE_BYTES:
                raise StorageError(f"a file of users has at most {MAX_FILE_BYTES} bytes", path=self._path)
            return file.read(file.size(), 0)
        finally:
            file.close()

    # A saver's side

    @property
    def changes(self) -> int:
        return self.table.changes

    def unsaved_files(self, *, urgent: bool = False) -> list[str]:
        return [ACCESS_FILE] if self._is_awaited else []

    def text(self, name: str) -> Iterator[bytes]:
        """Yields the file piece by piece. It counts as saved from now on: see ``failed``."""
        self._is_awaited = False
        self._digest = digest = hashlib.sha256()
        for piece in self.table.text():
            digest.update(piece)
            yield piece

    def saved(self, name: str) -> None:
        """The text that was taken last is on the disk."""
        self._known_digest = self._digest.digest()

    def failed(self, name: str) -> None:
        """The text could not be saved, and must be tried again."""
        self._is_awaited = True

    def is_urgent(self, name: str) -> bool:
        """Whether a response waits for the file."""
        return self._is_awaited

    def _change(self) -> None:
        self._is_awaited = True
        self.changed()


def _read(content: bytes) -> dict[str, User]:
    """Raises RemoteProtocolError for a file that is damaged, or has what is unknown."""
    try:
        return read_table(dialect.read_as(content, UserTable, bounded=False))
    except UsageError as error:
        raise RemoteProtocolError(f"a user of the file: {error}") from error
