"""``kill`` and a closed terminal end a command as Ctrl-C does: nothing stays owned, or open, that need not."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator

import pytest

from tallystick import cli


@pytest.fixture(autouse=True)
def as_they_come() -> Iterator[None]:
    """Whoever runs the tests by nohup has them ignore one of these, and a test before may have left a handler."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
def interrupt(request: pytest.FixtureRequest) -> Iterator[object]:
    """A job that a script started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Runs a command whose work is this; the exit code."""

    def run(work: Callable[[], object]) -> int:
        monkeypatch.setattr("tallystick.cli.options.MetadataOption.resolve", lambda service: work())
        return cli.main(["ledger", "list"])

    return run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_work_that_is_stopped_comes_to_its_end(
    number: signal.Signals, code: int, interrupt: object, runs: Callable[[Callable[[], object]], int]
) -> None:
    ends = []

    async def own() -> None:
        try:
            signal.raise_signal(number)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)  # as one gives a stream back
            ends.append(number)

    assert runs(lambda: asyncio.run(own())) == code
    assert ends == [number]
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_command_that_asks_is_stopped(
    number: signal.Signals, code: int, interrupt: object, runs: Callable[[Callable[[], object]], int]
) -> None:
    assert runs(lambda: signal.raise_signal(number)) == code


def test_what_nohup_ignores_stays_ignored(runs: Callable[[Callable[[], object]], int]) -> None:
    def work() -> str:
        signal.raise_signal(signal.SIGHUP)
        return "sqlite:///nowhere"

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert runs(work) == 1
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
