"""From settings to running parts: a bookie, a broker or a name server in the real world, and the process around it.

Exit codes are the original bookie's (``ExitCode``), for all three: 0 stopped on request, 1 bad configuration, 2 it may
not or cannot start, 4 its registration failed or was lost, 5 its disk failed.

A process imports the room it runs and no other: that is most of the time until it is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TextIO

from tallystick.errors import InvalidCookie, MetadataError, StorageError, TallyError, UsageError
from tallystick.runtime import open_files
from tallystick.runtime.events import Event, Events
from tallystick.runtime.garbage import Collections
from tallystick.runtime.instance import INSTANCE, require_count
from tallystick.runtime.log import log_listener, log_to_stderr, writable
from tallystick.runtime.machine import this_machine, without_keep_alive
from tallystick.runtime.memory import LoadMemory, keep_freed_memory
from tallystick.runtime.outside import Outside

if TYPE_CHECKING:
    from tallystick.bookkeeper.bookie.bookie import Bookie
    from tallystick.bookkeeper.bookie.config import BookieSettings
    from tallystick.bookkeeper.bookie.limbo_bookie import LimboBookie
    from tallystick.bookkeeper.bookie.own_copies import OwnCopies
    from tallystick.bookkeeper.bookie.surplus import SurplusCopies
    from tallystick.bookkeeper.repair.autorecovery import AutoRecovery
    from tallystick.bookkeeper.repair.keys import AutoRecoverySettings
    from tallystick.bookkeeper.repair.settings import RepairSettings
    from tallystick.bookkeeper.wire.values import LedgerId
    from tallystick.rocketmq.broker.settings import BrokerSettings
    from tallystick.rocketmq.nameserver.settings import NameServerSettings
    from tallystick.runtime.instance import Pages
    from tallystick.runtime.pace import Pace

_EXIT_CODES: tuple[tuple[type[TallyError], int], ...] = (
    (UsageError, 1),
    (InvalidCookie, 2),
    (MetadataError, 4),
    (StorageError, 5),
    (TallyError, 2),
)


@dataclass(frozen=True)
class Server:
    """One that answers. ``ready`` is the line that says so; ``failure`` ends with the reason why it cannot go on."""

    ready: str
    failure: asyncio.Future[Exception]
    stop: Callable[[], Awaitable[None]]


Start = Callable[[Outside], Awaitable[Server]]


# One function each, for the command line: run until SIGTERM, SIGINT or SIGHUP; the exit code. ``ready …`` goes to
# ``out`` (stdout), events to stderr.


def bookie_main(
    config: str | None, overrides: Mapping[str, str], out: TextIO | None = None, *, rejoin: bool = False
) -> int:
    def load() -> tuple[Start, Sequence[str]]:
        from tallystick.bookkeeper.bookie.keys import SCHEMA
        from tallystick.bookkeeper.repair.keys import KEYS

        # The keys of the repair are in the same file, and are read where it is on.
        values = SCHEMA.values(config, overrides)
        configuration = replace(SCHEMA, checked=tuple(KEYS.keys)).read(values)
        repair = KEYS.build(values) if configuration.settings.auto_recovery else None
        return partial(_bookie, configuration.settings, repair, rejoin=rejoin), configuration.ignored

    return _main("bookie", load, out)


def autorecovery_main(config: str | None, overrides: Mapping[str, str], out: TextIO | None = None) -> int:
    def load() -> tuple[Start, Sequence[str]]:
        from tallystick.bookkeeper.repair.keys import SCHEMA

        configuration = SCHEMA.load(config, overrides)
        return partial(_autorecovery, configuration.settings), configuration.ignored

    return _main("autorecovery", load, out)


def name_server_main(config: str | None, overrides: Mapping[str, str], out: TextIO | None = None) -> int:
    def load() -> tuple[Start, Sequence[str]]:
        from tallystick.rocketmq.nameserver.keys import SCHEMA

        configuration = SCHEMA.load(config, overrides)
        return partial(_name_server, configuration.settings), configuration.ignored

    return _main("nameserver", load, out)


def broker_main(config: str | None, overrides: Mapping[str, str], out: TextIO | None = None) -> int:
    def load() -> tuple[Start, Sequence[str]]:
        from tallystick.rocketmq.broker.keys import SCHEMA

        configuration = SCHEMA.load(config, overrides)
        return partial(_broker, configuration.settings), configuration.ignored

    return _main("broker", load, out)


def bookies_main(
    config: str | None,
    overrides: Mapping[str, str],
    instances: int,
    out: TextIO | None = None,
    *,
    rejoin: bool = False,
) -> int:
    """Several bookies, a process each."""

    def load() -> tuple[Start, Sequence[str]]:
        from tallystick.bookkeeper.bookie.instances import bookie_instances
        from tallystick.bookkeeper.bookie.keys import SCHEMA
        from tallystick.bookkeeper.repair.keys import KEYS

        require_count(instances)
        texts = SCHEMA.values(config, overrides)
        own, pages = bookie_instances(texts, instances, checked=tuple(KEYS.keys))
        # Each rejoins for one start: who is killed later has its own disk.
        once = ["--rejoin"] if rejoin else []
        return partial(_instances, _commands("bookie", config, overrides, own), pages, once), ()

    return _main("bookie", load, out, ends_start=True)


def brokers_main(config: str | None, overrides: Mapping[str, str], instances: int, out: TextIO | None = None) -> int:
    """Several brokers, a process each."""

    def load() -> tuple[Start, Sequence[str]]:
        from tallystick.rocketmq.broker.instances import broker_instances
        from tallystick.rocketmq.broker.keys import SCHEMA

        require_count(instances)
        own, pages = broker_instances(SCHEMA.values(config, overrides), instances)
        return partial(_instances, _commands("broker", config, overrides, own), pages, ()), ()

    return _main("broker", load, out, ends_start=True)


def _commands(
    kind: str,
    config: str | None,
    overrides: Mapping[str, str],
    own: Sequence[Mapping[str, str]],
) -> list[list[str]]:
    """The command of each instance: that of all, with the settings that are its own."""
    start = [
        sys.executable,
        "-P",
        "-m",
        "tallystick",
        kind,
        "run",
        *(["--config", config] if config is not None else []),
    ]
    settings = [[f"--set={key}={value}" for key, value in {**overrides, **each}.items()] for each in own]
    return [[*start, *words] for words in settings]


async def _instances(
    commands: Sequence[Sequence[str]], pages: Pages | None, once: Sequence[str], outside: Outside
) -> Server:
    from tallystick.runtime.instances import Instances

    service = await Instances.start(commands, outside, pages, once=once)
    return Server(service.ready, service.failure, service.stop)


async def _bookie(settings: BookieSettings, repair: RepairSettings | None, outside: Outside, *, rejoin: bool) -> Server:
    from tallystick.bookkeeper.bookie.bookie import start_bookie

    if not settings.keep_alive:
        outside = without_keep_alive(outside)
    bookie = await start_bookie(settings, outside, fill=_fill, mend=_mend, shed=_shed, rejoin=rejoin)
    http = f" http={_host_port(bookie.http_address)}" if bookie.http_address else ""
    ready = f"ready bookie={bookie.id} address={_host_port(bookie.address)}{http}"
    if repair is None:
        return Server(ready, bookie.failure, bookie.stop)
    try:
        running = await _start_repair(
            settings.metadata_uri, bookie.id, repair, outside, settings.session_timeout_s, bookie.repair_pace
        )
    except BaseException:
        await bookie.stop()
        raise
    return _both(ready, bookie, running)


def _both(ready: str, bookie: Bookie, repair: AutoRecovery) -> Server:
    """A bookie whose repair fails goes on: whoever watches its log starts another one."""

    async def stop() -> None:
        await repair.close()
        await bookie.stop()

    return Server(ready, bookie.failure, stop)


async def _start_repair(
    uri: str,
    name: str,
    settings: RepairSettings,
    outside: Outside,
    session_timeout_s: float,
    within: Pace | None = None,
) -> AutoRecovery:
    from tallystick.bookkeeper.repair.autorecovery import AutoRecovery

    return await AutoRecovery.start(uri, name, settings, outside, session_timeout_s=session_timeout_s, within=within)


async def _fill(bookie: LimboBookie) -> None:
    """Load the ledgers' client only where a bookie has ledgers in limbo."""
    from tallystick.bookkeeper.repair.fill import fill

    await fill(bookie)


async def _mend(own: OwnCopies) -> None:
    """Load the ledgers' client only where a bookie has damaged entries."""
    while not len(own.damages):
        await own.damages.added.wait()
        own.damages.added.clear()
    from tallystick.bookkeeper.repair.mend import mend

    await mend(own)


async def _shed(own: SurplusCopies, ledgers: Sequence[LedgerId]) -> Sequence[LedgerId]:
    """Load the ledgers' client only where a bookie has copies that others have instead."""
    from tallystick.bookkeeper.repair.surplus import shed

    return await shed(own, ledgers)


async def _autorecovery(settings: AutoRecoverySettings, outside: Outside) -> Server:
    running = await _start_repair(
        settings.metadata_uri, settings.name, settings.repair, outside, settings.session_timeout_s
    )
    return Server(f"ready autorecovery={settings.name}", running.failure, running.close)


async def _broker(settings: BrokerSettings, outside: Outside) -> Server:
    from tallystick.rocketmq.broker.broker import start_broker

    broker = await start_broker(settings, outside)
    ready = f"ready broker={settings.name} id={settings.broker_id} address={_host_port(broker.address)}"
    for name, address in (("ha", broker.ha_address), ("http", broker.http_address)):
        ready += f" {name}={_host_port(address)}" if address is not None else ""
    return Server(ready, broker.failure, broker.stop)


async def _name_server(settings: NameServerSettings, outside: Outside) -> Server:
    from tallystick.rocketmq.nameserver.server import NameServer

    server = NameServer(settings, outside)
    try:
        address = await server.start()
    except OSError as error:
        raise UsageError(
            f"cannot listen: {error.strerror or error}", host=settings.bind_host, port=settings.port
        ) from error
    never = asyncio.get_running_loop().create_future()
    http = f" http={_host_port(server.http_address)}" if server.http_address is not None else ""
    return Server(f"ready nameserver address={_host_port(address)}{http}", never, server.close)


# The process


def _main(
    name: str, load: Callable[[], tuple[Start, Sequence[str]]], out: TextIO | None, *, ends_start: bool = False
) -> int:
    """``ends_start``: a signal ends a start that is under way: of several some serve by then, and some may never."""
    if instance := os.environ.get(INSTANCE):
        name += f".{instance}"  # the lines of several come to one standard error
    try:
        from tallystick.codec.implementation import in_use  # here, as it refuses what the environment may say

        start, ignored = load()
        log = log_to_stderr(os.environ)  # standard output carries the ready line alone
    except TallyError as error:
        return _explain(error)
    try:
        log_listener(name)(Event("server starts", {"codec": in_use()}))
        if ignored:
            log_listener(name)(Event("settings change nothing here", {"keys": ", ".join(ignored)}))
        keep_freed_memory()
        with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
            return runner.run(_serve(name, start, out or sys.stdout, ends_start=ends_start))
    except TallyError as error:
        return _explain(error)
    finally:
        log.close()


async def _serve(name: str, start: Start, out: TextIO, *, ends_start: bool) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        numbers.append(signal.SIGHUP)  # the terminal was closed
    for number in numbers:
        loop.add_signal_handler(number, stopping.set)
    outside = this_machine(Events(log_listener(name)), open_files=open_files.raise_limit())
    collections, memory = Collections(outside.clock), LoadMemory()
    stop_request, starting = loop.create_task(stopping.wait()), loop.create_task(_started(start, outside))
    if ends_start:
        await asyncio.wait((stop_request, starting), return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
    try:
        server = await starting
    except asyncio.CancelledError:
        return 0
    collections.start()
    memory.start()
    _tell_ready(server.ready, out)
    await asyncio.wait((stop_request, server.failure), return_when=asyncio.FIRST_COMPLETED)
    stop_request.cancel()
    collections.close()
    memory.close()
    await server.stop()
    return _explain(server.failure.result()) if server.failure.done() else 0


async def _started(start: Start, outside: Outside) -> Server:
    gc.disable()  # what a start makes stays: looking for garbage in it again and again takes longer than some starts
    try:
        return await start(outside)
    finally:
        gc.enable()


def _tell_ready(line: str, out: TextIO) -> None:
    """A terminal may be closed by now: SIGHUP says whether that stops the server, and it stops as ever."""
    try:
        print(line, file=out, flush=True)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # What is left in the buffer would fail again at the exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out.fileno())
        os.close(nowhere)


def _host_port(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _explain(error: Exception) -> int:
    """Say why the process ends, unless nobody reads that; the exit code."""
    if writable(sys.stderr):
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    if isinstance(error, TallyError) and (code := error.fields.get("exit_code")) is not None:  # of an instance
        return int(code) if code >= 0 else 128 - int(code)
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 2)


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
