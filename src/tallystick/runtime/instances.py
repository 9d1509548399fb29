"""Several servers of one kind as one service: a process each, started, watched and stopped together.

One whose disk fails leaves the others as they are: that is what they are several for. One that was killed, or lost its
registration, or of which the machine made no process, is started again. The pages of all say who serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.errors import TallyError, UsageError
from tallystick.runtime.health import HealthPages, process_registry, serve_health
from tallystick.runtime.instance import INSTANCE, Pages
from tallystick.runtime.outside import Outside
from tallystick.runtime.tasks import watch

if TYPE_CHECKING:
    from prometheus_client import Metric

    from tallystick.runtime.network import Listener

FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0  # before one is started again
LONG_S = 60.0  # who ran so long begins with the first pause
CANNOT_START = 2  # as the exit code of one of which no process could be made
REGISTRATION_LOST = 4  # the exit code of a server that may be let in again
_PR_SET_PDEATHSIG = 1  # of Linux's prctl
_STARTS, _SERVES, _WAITS, _ENDED = "starts", "serves", "waits", "ended"


@dataclass
class Instance:
    """``command`` runs a server that prints one line when it is ready, with the words ``once`` behind it until it was.
    ``seen``: it was ready, or ended."""

    number: int
    command: Sequence[str]
    once: Sequence[str] = ()
    state: str = _STARTS
    ready: str = ""
    starts: int = 0
    exit_code: int | None = None
    process: asyncio.subprocess.Process | None = None
    seen: asyncio.Event = field(default_factory=asyncio.Event)


class InstancesCollector:
    """The metrics of the service itself: each instance has a page of its own."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._instances = instances

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        serves = GaugeMetricFamily("tallystick_instance_serves", "Whether it answers: 1 or 0", labels=["instance"])
        starts = GaugeMetricFamily("tallystick_instance_starts", "How often it was started", labels=["instance"])
        for each in self._instances:
            serves.add_metric([str(each.number)], each.state == _SERVES)
            starts.add_metric([str(each.number)], each.starts)
        yield serves
        yield starts


class Instances:
    """The processes of one service. ``failure`` gets an error when none runs any more: its field ``exit_code`` is that
    of a process, or minus the signal that ended it."""

    def __init__(self, commands: Sequence[Sequence[str]], outside: Outside, once: Sequence[str]) -> None:
        self._instances = [Instance(number, command, once) for number, command in enumerate(commands, 1)]
        self._clock, self._events, self._network = outside.clock, outside.events, outside.network
        self._stopping = asyncio.Event()
        self._keepers: list[asyncio.Task[None]] = []
        self._listener: Listener | None = None
        self.failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, commands: Sequence[Sequence[str]], outside: Outside, pages: Pages | None, *, once: Sequence[str] = ()
    ) -> Instances:
        """Return when each is ready or has ended. Raises TallyError, as ``failure``, if none is; UsageError.

        ``once``: words behind each command for its first start alone, which is over when it was ready.
        """
        service = cls(commands, outside, once)
        if pages is not None:
            await service._show(pages)
        service._keepers = [asyncio.create_task(service._keep(each)) for each in service._instances]
        watch(service._keepers, service._failed)
        try:
            await asyncio.gather(*(each.seen.wait() for each in service._instances))
        except BaseException:
            await service.stop()
            raise
        if not any(each.ready for each in service._instances):
            await service.stop()
            raise service._ended()
        return service

    @property
    def ready(self) -> str:
        """The ready lines of those that serve, and how many that are."""
        lines = [each.ready for each in self._instances if each.ready]
        http = ""
        if self._listener is not None:
            host, port = self._listener.address
            http = f" http={host}:{port}"
        return "\n".join([*lines, f"ready instances={len(lines)} of={len(self._instances)}{http}"])

    async def stop(self) -> None:
        """Stop those that run, all at once, and wait for them."""
        self._stopping.set()
        for each in self._instances:
            _terminate(each.process)
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._listener is not None:
            await self._listener.close()
        if any(each.exit_code for each in self._instances) and not self.failure.done():
            self.failure.set_result(self._ended())

    async def _show(self, pages: Pages) -> None:
        try:
            registry = process_registry(InstancesCollector(self._instances))
            shown = HealthPages(registry, self._health)
            self._listener = await serve_health(self._network, pages.host, pages.port, shown)
        except OSError as error:
            raise UsageError(f"cannot listen: {error.strerror or error}", host=pages.host, port=pages.port) from error

    async def _keep(self, one: Instance) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began, was_made = self._clock.now(), True
            try:
                code = await self._run(one)
            except OSError as error:  # the machine lacks memory or handles, or the command is being exchanged
                code, was_made = CANNOT_START, False
                self._events.emit("instance not made", instance=one.number, reason=error.strerror or str(error))
            if self._stopping.is_set():
                one.exit_code = 0 if code == -signal.SIGTERM else code  # it had no handler yet
                return
            one.exit_code, one.ready = code, ""
            one.seen.set()
            if was_made and code >= 0 and code != REGISTRATION_LOST:
                self._leave(one, code)
                return
            if self._clock.now() - began > LONG_S:
                pause_s = FIRST_PAUSE_S
            one.state = _WAITS
            self._events.emit("instance starts again", instance=one.number, exit_code=code, pause_s=pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _run(self, one: Instance) -> int:
        """One life of a process: its exit code, or minus the signal that ended it."""
        one.state, one.starts = _STARTS, one.starts + 1
        one.process = process = await asyncio.create_subprocess_exec(
            *one.command,
            *one.once,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which tells the others
            preexec_fn=_end_with(os.getpid()),
            env={**os.environ, INSTANCE: str(one.number)},
        )
        if self._stopping.is_set():  # it was told to nobody
            _terminate(process)
        assert process.stdout is not None  # it is a pipe
        if line := (await process.stdout.readline()).decode().strip():
            one.state, one.ready, one.exit_code, one.once = _SERVES, line, None, ()
            if one.seen.is_set():
                self._events.emit("instance serves again", instance=one.number, starts=one.starts)
            one.seen.set()
        await process.stdout.read()
        return await process.wait()

    def _leave(self, one: Instance, code: int) -> None:
        one.state = _ENDED
        self._events.emit("instance ended", instance=one.number, exit_code=code)
        if all(each.state == _ENDED for each in self._instances) and not self.failure.done():
            self.failure.set_result(self._ended())

    def _failed(self, error: Exception) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    def _ended(self) -> TallyError:
        """The first of those that ended by a fault, else the first that ended."""
        one = next((each for each in self._instances if each.exit_code), self._instances[0])
        return TallyError("an instance ended: its lines say why", instance=one.number, exit_code=one.exit_code or 0)

    def _health(self) -> dict[str, object]:
        rows = [
            {
                "instance": each.number,
                "state": each.state,
                "starts": each.starts,
                "exit_code": each.exit_code,
                "ready": each.ready.removeprefix("ready "),
            }
            for each in self._instances
        ]
        return {"healthy": all(each.state == _SERVES for each in self._instances), "instances": rows}


def _terminate(process: asyncio.subprocess.Process | None) -> None:
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()


def _end_with(parent: int) -> Callable[[], None]:
    """Have the kernel tell a new process to stop when this one ends by SIGKILL: nobody else would."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # no Linux
        return lambda: None

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return prepare
