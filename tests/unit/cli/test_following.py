"""A command that follows a log ends soon after whoever read its output."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tallystick.cli.following import while_read

WITHIN_S = 5


async def test_a_log_that_is_idle_is_followed_no_longer_than_somebody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def follow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        command = asyncio.create_task(while_read(follow()))
        done, _ = await asyncio.wait({command}, timeout=1)
        assert not done
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            await asyncio.wait_for(command, WITHIN_S)
    assert ended.is_set()


async def test_what_ends_the_work_ends_the_command() -> None:
    async def fail() -> None:
        raise ValueError("no log")

    with pytest.raises(ValueError, match="no log"):
        await while_read(fail())


async def test_an_interrupted_command_lets_its_work_end() -> None:
    ended = []

    async def follow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    command = asyncio.create_task(while_read(follow()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    assert ended
