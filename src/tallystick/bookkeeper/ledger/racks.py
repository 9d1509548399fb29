"""Which rack a bookie is in, where its registration does not say: by a file, by Pulsar's node, by a script.

The first of them that knows a bookie counts. They are read before the first placement that needs them, and again every
``REFRESH_S`` beside placements, which then go by what is known. One that fails keeps what it said before.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import translate
from pathlib import Path
from typing import Protocol

from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.store import MetadataStore
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import MetadataError, UsageError
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

PULSAR_NODE = "/bookies"
REFRESH_S = 10.0
SCRIPT_S = 10.0  # for one call
END_S = 1.0  # that one which is killed may take to be gone
SCRIPT_HOSTS = 100  # in one call (``networkTopologyScriptNumberArgs``)
MOST_BYTES = 1024 * 1024  # of a file, a node, or what a script prints
MOST_PATTERNS = 1000  # in a file: each bookie is compared with them

_WILD = frozenset("*?[")  # what makes a pattern of a name

Hosts = Mapping[BookieId, str]  # the registered host of each bookie
_Names = dict[BookieId, tuple[int, str]]  # by name the line and the rack
_Patterns = list[tuple[int, re.Pattern[str], str]]  # the lines, which ascend, and their racks
_NOWHERE = (MOST_BYTES + 1, "")  # behind all lines


class RackSource(Protocol):
    """Where racks come from."""

    async def racks(self, hosts: Hosts) -> Mapping[BookieId, str]:
        """Return the racks of those of these bookies that it knows. Raises UsageError, MetadataError."""
        ...


class RackFile:
    """A file of lines ``bookie=rack``; the bookie may have ``*``, ``?`` and ``[…]``, and the first line that fits
    counts. ``#`` begins a comment."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def racks(self, hosts: Hosts) -> Mapping[BookieId, str]:
        return await asyncio.to_thread(_racks_in, self._path, hosts)  # of many bookies not in one turn of the loop


def _racks_in(path: str, hosts: Hosts) -> dict[BookieId, str]:
    names, patterns = _lines(_read(path), path)
    racks = {}
    for bookie in hosts:
        number, rack = names.get(bookie, _NOWHERE)
        for other_number, pattern, other_rack in patterns:
            if other_number > number:
                break
            if pattern.match(bookie):
                rack = other_rack
                break
        if rack:
            racks[bookie] = rack
    return racks


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the file of racks cannot be read: {error.strerror}", path=path) from error


def _lines(data: bytes, path: str) -> tuple[_Names, _Patterns]:
    if len(data) > MOST_BYTES:
        raise UsageError("the file of racks is too long", path=path, max_bytes=MOST_BYTES)
    names: _Names = {}
    patterns: _Patterns = []
    for number, line in enumerate(data.decode(errors="replace").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        bookie, equals, rack = (part.strip() for part in text.rpartition("="))
        if text and not (equals and bookie and rack):
            raise UsageError("a line of the file of racks is not bookie=rack", path=path, line=number)
        if not _WILD.isdisjoint(bookie):
            if len(patterns) == MOST_PATTERNS:
                raise UsageError(
                    "the file of racks has too many patterns: name bookies in full", path=path, line=number,
                    most=MOST_PATTERNS,
                )  # fmt: skip
            patterns.append((number, re.compile(translate(bookie)), rack))
        elif text:
            names.setdefault(bookie, (number, rack))
    return names, patterns


class PulsarRacks:
    """The node that ``pulsar-admin bookies set-bookie-rack`` writes: ``{group: {address: {"rack": …}}}``. A bookie is
    found by its id or, as in Pulsar's ``BookieRackAffinityMapping``, by the host of the address."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def racks(self, hosts: Hosts) -> Mapping[BookieId, str]:
        node = await self._store.get(PULSAR_NODE)
        by_address = _pulsar_racks(node.data if node is not None else b"{}")
        by_host = {address.rpartition(":")[0] or address: rack for address, rack in by_address.items()}
        racks = {bookie: by_address.get(bookie) or by_host.get(host, "") for bookie, host in hosts.items()}
        return {bookie: rack for bookie, rack in racks.items() if rack.strip("/ ")}


def _pulsar_racks(data: bytes) -> dict[str, str]:
    try:
        groups = json.loads(data[: MOST_BYTES + 1] or b"{}")
        return {
            address: str(info["rack"])
            for group in groups.values()
            for address, info in group.items()
            if info.get("rack") is not None
        }
    except (ValueError, AttributeError, RecursionError) as error:
        raise MetadataError(f"the racks in the metadata are damaged: {error}", path=PULSAR_NODE) from error


class RackScript:
    """The original's ``networkTopologyScriptFileName``: a program that is given hosts and prints a rack for each."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._by_host = dict[str, str]()

    async def racks(self, hosts: Hosts) -> Mapping[BookieId, str]:
        current_hosts = frozenset(hosts.values())
        self._by_host = {host: rack for host, rack in self._by_host.items() if host in current_hosts}
        unknown = [host for host in dict.fromkeys(hosts.values()) if host not in self._by_host]
        for start in range(0, len(unknown), SCRIPT_HOSTS):
            part = unknown[start : start + SCRIPT_HOSTS]
            self._by_host.update(zip(part, await self._run(part), strict=True))
        return {bookie: self._by_host[host] for bookie, host in hosts.items()}

    async def _run(self, hosts: Sequence[str]) -> list[str]:
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(self._path, *hosts, stdin=none, stdout=pipe, stderr=none)
        except OSError as error:
            raise UsageError(f"the script of racks cannot be run: {error.strerror}", path=self._path) from error
        assert process.stdout is not None
        try:
            async with asyncio.timeout(SCRIPT_S):
                output = await _output(process.stdout)
                code = await process.wait()
        except TimeoutError:
            raise UsageError("the script of racks took too long", path=self._path, seconds=SCRIPT_S) from None
        finally:
            if process.returncode is None:
                await _end(process, process.stdout)
        racks = output.decode(errors="replace").split()
        if code != 0 or len(racks) != len(hosts):
            raise UsageError(
                "the script of racks gave no rack for each host", path=self._path, code=code, hosts=len(hosts)
            )
        return racks


async def _end(process: asyncio.subprocess.Process, stdout: asyncio.StreamReader) -> None:
    """Kill it, and wait until nothing is left of it; for a program of its own that has its output not for long."""
    with suppress(ProcessLookupError):
        process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            while await stdout.read(MOST_BYTES):
                pass
            await process.wait()


async def _output(stdout: asyncio.StreamReader) -> bytes:
    """Return all that a script prints; of one that prints too much the beginning, and it waits until it is ended."""
    output = bytearray()
    while len(output) < MOST_BYTES and (part := await stdout.read(MOST_BYTES)):
        output += part
    return bytes(output)


def rack_sources(settings: ClientSettings, store: MetadataStore) -> list[RackSource]:
    """Return the sources that the settings name, in the order in which they count."""
    sources = list[RackSource]()
    if settings.rack_file:
        sources.append(RackFile(settings.rack_file))
    if settings.pulsar_racks:
        sources.append(PulsarRacks(store))
    if settings.rack_script:
        sources.append(RackScript(settings.rack_script))
    return sources


class Racks:
    """What the sources of one client say. ``close`` it."""

    def __init__(self, sources: Sequence[RackSource], clock: Clock, events: Events) -> None:
        self._sources, self._clock, self._events = sources, clock, events
        self._answers: list[Mapping[BookieId, str]] = [{} for _ in sources]
        self._bookies: RegisteredBookies | None = None  # those that were read for last
        self._due_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._failures: list[str] = ["" for _ in sources]
        self.by_bookie: Mapping[BookieId, str] = {}

    async def refresh(self, bookies: RegisteredBookies, hosts: Hosts) -> None:
        """Read the sources if it is time; wait for that where bookies are others than before."""
        if not self._sources:
            return
        is_news = bookies is not self._bookies
        if self._task is None and (is_news or self._clock.now() >= self._due_at):
            self._bookies, self._due_at = bookies, self._clock.now() + REFRESH_S
            self._task = asyncio.get_running_loop().create_task(self._read(dict(hosts)))
        if self._task is not None and is_news:
            await asyncio.shield(self._task)

    async def _read(self, hosts: Hosts) -> None:
        try:
            for number, source in enumerate(self._sources):
                await self._read_one(number, source, hosts)
            merged = dict[BookieId, str]()
            for answer in reversed(self._answers):
                merged.update(answer)
            if merged != self.by_bookie:
                self.by_bookie = merged
        finally:
            self._task = None

    async def _read_one(self, number: int, source: RackSource, hosts: Hosts) -> None:
        try:
            self._answers[number] = await source.racks(hosts)
            self._failures[number] = ""
        except (UsageError, MetadataError) as error:
            if str(error) != self._failures[number]:  # each failure once
                self._failures[number] = str(error)
                self._events.emit("racks not read", reason=str(error))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
