"""The development cluster: bookies as processes of this machine, their metadata in one SQLite file.

::

    DIR/dev.json                 uri; for each bookie its id, process (pid, start time) and port
    DIR/LOCK                     held while a command changes the cluster
    DIR/metadata.db              the coordination service
    DIR/bookie-1/bookie.toml     what ``tally bookie run`` is given
    DIR/bookie-1/bookie.log      what it prints
    DIR/bookie-1/data            its journal and ledgers

Bookies bind port 0 on loopback; their registrations, and ``dev.json`` for show, carry the port that was really bound.
A process is written to ``dev.json`` before it is waited for, so that no crash of this command can lose one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tallystick.admin.process import ProcessId, ProcessState, send, spawn, state_of, wait_dead
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import MetadataError, StorageError, TallyError, Unavailable, UsageError
from tallystick.runtime.disk import FolderLock, OsDisk, read_file, write_atomic

DEFAULT_BOOKIES = 4  # one more than the default ensemble: one kill leaves a replacement
READY_S = 15.0
STOP_S = 10.0
POLL_S = 0.01
LOG_TAIL_LINES = 15

_READY = re.compile(rb"^ready bookie=\S+ address=\S*:(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class DevBookie:
    """``port`` 0: it has not said yet where it listens."""

    id: BookieId
    process: ProcessId
    port: int = 0


@dataclass(frozen=True)
class DevState:
    uri: str
    bookies: tuple[DevBookie, ...] = ()

    def find(self, bookie: BookieId) -> DevBookie | None:
        return next((one for one in self.bookies if one.id == bookie), None)

    def with_bookie(self, bookie: DevBookie) -> DevState:
        kept = [one for one in self.bookies if one.id != bookie.id]
        return replace(self, bookies=tuple(sorted([*kept, bookie], key=lambda one: _number(one.id))))


@dataclass(frozen=True)
class DevStatus:
    """One bookie as it is now; ``registered`` is None when the metadata could not be read."""

    id: BookieId
    state: ProcessState
    pid: int
    port: int
    registered: bool | None


def default_directory(environment: Mapping[str, str]) -> str:
    """``TALLY_DEV_DIR``, else a folder of the user's state folder."""
    if chosen := environment.get("TALLY_DEV_DIR"):
        return os.path.abspath(chosen)
    state = environment.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "tallystick", "dev")


def running_uri(directory: str) -> str | None:
    """Where a cluster runs that was started here: at least one of its processes is not dead."""
    state = DevCluster(directory).load()
    if state is None or all(state_of(bookie.process) is ProcessState.DEAD for bookie in state.bookies):
        return None
    return state.uri


def find_uri(environment: Mapping[str, str] = os.environ) -> str:
    """The cluster that is meant when nothing was said: ``TALLY_URI``, else the running one of the default folder.

    Raises UsageError when there is neither.
    """
    directory = default_directory(environment)
    found = environment.get("TALLY_URI") or running_uri(directory)
    if not found:
        raise UsageError(
            "which cluster? Give --uri, set TALLY_URI, or start one with: tally dev up", looked_in=directory
        )
    return found


class DevCluster:
    """The cluster of one folder. Every method is one order; none of them keeps anything in memory between two."""

    def __init__(self, directory: str, report: Callable[[str], None] = lambda line: None) -> None:
        self.directory = os.path.abspath(directory)
        self._disk = OsDisk()
        self._report = report

    def load(self) -> DevState | None:
        """What was last written; None where no cluster was started."""
        path = self._path("dev.json")
        if not self._disk.exists(path):
            return None
        try:
            return msgspec.json.decode(read_file(self._disk, path), type=DevState)
        except msgspec.DecodeError as error:
            raise StorageError(f"this file is not a development cluster's state: {error}", path=path) from error

    def up(self, bookies: int | None = None) -> DevState:
        """Start what does not run: ``bookies`` of them, by default as many as before. Running ones stay as they are.

        Raises Unavailable, with the end of the log, when one does not get ready; those started by this call are ended.
        """
        if bookies is not None and bookies < 1:
            raise UsageError("a cluster needs at least one bookie", bookies=bookies)
        self._disk.makedirs(self.directory)
        with self._locked():
            state = self.load() or DevState(uri=f"sqlite://{self._path('metadata.db')}")
            asyncio.run(_ensure_cluster(state.uri))
            wanted = max(bookies or 0, len(state.bookies)) if state.bookies else bookies or DEFAULT_BOOKIES
            missing = [f"bookie-{n}" for n in range(1, wanted + 1) if not _runs(state, f"bookie-{n}")]
            return self._start(state, missing)

    def status(self) -> list[DevStatus]:
        state = self._require()
        registered = asyncio.run(_registered(state.uri))
        return [
            DevStatus(
                bookie.id, state_of(bookie.process), bookie.process.pid, bookie.port,
                registered=None if registered is None else bookie.id in registered,
            )
            for bookie in state.bookies
        ]  # fmt: skip

    def down(self, *, delete: bool = False) -> int:
        """Stop every bookie; how many ran. ``delete`` also removes all that we put into the folder, data included."""
        state = self._require()
        with self._locked():
            running = [bookie for bookie in state.bookies if state_of(bookie.process) is not ProcessState.DEAD]
            self._end([bookie.process for bookie in running])
            if delete:
                self._delete(state)
        return len(running)

    def kill(self, ids: Sequence[str]) -> list[BookieId]:
        """End bookies without warning (SIGKILL), as a crash would. Raises UsageError for one that does not run."""
        return self._signal(ids, signal.SIGKILL, (ProcessState.ALIVE, ProcessState.PAUSED))

    def pause(self, ids: Sequence[str]) -> list[BookieId]:
        """Freeze bookies (SIGSTOP): they keep their connections and answer nothing."""
        return self._signal(ids, signal.SIGSTOP, (ProcessState.ALIVE,))

    def resume(self, ids: Sequence[str]) -> list[BookieId]:
        return self._signal(ids, signal.SIGCONT, (ProcessState.PAUSED,))

    def restart(self, ids: Sequence[str]) -> list[BookieId]:
        """Stop bookies if they run, and start them on the same data."""
        state = self._require()
        chosen = self._choose(state, ids)
        with self._locked():
            self._end([bookie.process for bookie in chosen])
            self._start(state, [bookie.id for bookie in chosen])
        return [bookie.id for bookie in chosen]

    # The rest is how.

    def _path(self, *parts: str) -> str:
        return os.path.join(self.directory, *parts)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FolderLock(self.directory)
        try:
            yield
        finally:
            lock.release()

    def _require(self) -> DevState:
        state = self.load()
        if state is None:
            raise UsageError("no development cluster here; start one with: tally dev up", directory=self.directory)
        return state

    def _save(self, state: DevState) -> None:
        write_atomic(self._disk, self._path("dev.json"), msgspec.json.format(msgspec.json.encode(state)) + b"\n")

    def _choose(self, state: DevState, ids: Sequence[str]) -> list[DevBookie]:
        """``2`` is short for ``bookie-2``."""
        chosen = []
        for given in ids:
            bookie = state.find(f"bookie-{given}" if given.isdecimal() else given)
            if bookie is None:
                known = ", ".join(one.id for one in state.bookies)
                raise UsageError(f"no bookie {given!r} in this cluster; it has {known}")
            chosen.append(bookie)
        return chosen

    def _signal(self, ids: Sequence[str], number: signal.Signals, allowed: tuple[ProcessState, ...]) -> list[BookieId]:
        chosen = self._choose(self._require(), ids)
        for bookie in chosen:
            found = state_of(bookie.process)
            if found not in allowed or not send(bookie.process, number):
                wanted = " or ".join(one.value for one in allowed)
                raise UsageError(f"{bookie.id} is {state_of(bookie.process).value}, not {wanted}")
        for bookie in chosen:  # signals are delivered later: the caller may rely on the new state
            _await_effect(bookie.process, number)
        return [bookie.id for bookie in chosen]

    def _start(self, state: DevState, ids: Sequence[BookieId]) -> DevState:
        started: list[tuple[DevBookie, int]] = []
        try:
            for bookie_id in ids:
                process, log_start = self._spawn(state.uri, bookie_id)
                bookie = DevBookie(bookie_id, process)
                started.append((bookie, log_start))
                state = state.with_bookie(bookie)
                self._save(state)
            for bookie, log_start in started:
                ready = replace(bookie, port=self._wait_ready(bookie, log_start))
                self._report(f"{ready.id} ready on 127.0.0.1:{ready.port}")
                state = state.with_bookie(ready)
            self._save(state)
        except BaseException:
            for bookie, _ in started:
                send(bookie.process, signal.SIGKILL)
                wait_dead(bookie.process, STOP_S)
            raise
        return state

    def _spawn(self, uri: str, bookie: BookieId) -> tuple[ProcessId, int]:
        """The process, and where in its log its own lines begin."""
        data, config, log = (self._path(bookie, name) for name in ("data", "bookie.toml", "bookie.log"))
        self._disk.makedirs(data)
        settings: dict[str, str | int | bool] = {
            "metadataServiceUri": uri,
            "bookieId": bookie,
            "bookiePort": 0,
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": True,
            "journalDirectory": data,
            "ledgerDirectories": data,
        }
        # A JSON string, number or truth value is written the same in TOML.
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in settings.items()]
        write_atomic(self._disk, config, "".join(["[bookie]\n", *lines]).encode())
        log_start = os.path.getsize(log) if self._disk.exists(log) else 0
        return spawn(["bookie", "run", "--config", config], log=log), log_start

    def _wait_ready(self, bookie: DevBookie, log_start: int) -> int:
        """The port it says it listens on."""
        log = self._path(bookie.id, "bookie.log")
        deadline = time.monotonic() + READY_S
        while True:
            dead = (
                state_of(bookie.process) is ProcessState.DEAD
            )  # before the log: what a dead process wrote is all there
            with open(log, "rb") as file:
                file.seek(log_start)
                printed = file.read()
            if found := _READY.search(printed):
                return int(found.group(1))
            if dead or time.monotonic() > deadline:
                why = "ended" if dead else f"was not ready after {READY_S:.0f} s"
                tail = b"\n".join(printed.splitlines()[-LOG_TAIL_LINES:]).decode(errors="replace")
                raise Unavailable(f"{bookie.id} {why}; the end of its log:\n{tail}\n", log=log)
            time.sleep(POLL_S)

    def _delete(self, state: DevState) -> None:
        """Only what is ours: the folder may be one that the user keeps other things in."""
        for bookie in state.bookies:
            shutil.rmtree(self._path(bookie.id), ignore_errors=True)
        for name in self._disk.listdir(self.directory):
            if name in ("LOCK", "dev.json") or name.startswith("metadata.db"):
                self._disk.unlink(self._path(name))
        if not self._disk.listdir(self.directory):
            os.rmdir(self.directory)

    def _end(self, processes: Sequence[ProcessId]) -> None:
        for process in processes:
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)  # a paused process handles nothing before it goes on
        deadline = time.monotonic() + STOP_S
        for process in processes:
            if not wait_dead(process, max(0.0, deadline - time.monotonic())):
                send(process, signal.SIGKILL)
                wait_dead(process, STOP_S)


def _number(bookie: BookieId) -> int:
    return int(bookie.rpartition("-")[2])


def _runs(state: DevState, bookie: BookieId) -> bool:
    known = state.find(bookie)
    return known is not None and state_of(known.process) is not ProcessState.DEAD


def _await_effect(process: ProcessId, number: signal.Signals) -> None:
    if number is signal.SIGKILL:
        wait_dead(process, STOP_S)
        return
    wanted = ProcessState.PAUSED if number is signal.SIGSTOP else ProcessState.ALIVE
    deadline = time.monotonic() + STOP_S
    while state_of(process) not in (wanted, ProcessState.DEAD) and time.monotonic() < deadline:
        time.sleep(POLL_S / 10)


async def _ensure_cluster(uri: str) -> None:
    from tallystick.bookkeeper.metadata.open import open_driver

    driver = await open_driver(uri)
    try:
        try:
            await driver.instance_id()
        except MetadataError:
            await driver.init_cluster()
    finally:
        await driver.close()


async def _registered(uri: str) -> set[BookieId] | None:
    from tallystick.bookkeeper.metadata.open import open_driver

    try:
        driver = await open_driver(uri)
    except TallyError:
        return None
    try:
        bookies = await driver.bookies()
        return {*bookies.writable, *bookies.read_only}
    except TallyError:
        return None
    finally:
        await driver.close()
