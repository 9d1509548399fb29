import asyncio
import os
from pathlib import Path

import pytest

from tallystick.cli import lines as module
from tallystick.cli.lines import lines
from tallystick.errors import TallyError, UsageError


async def collect(fd: int) -> list[bytes]:
    return [line async for some in lines(fd, 100) for line in some]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"a\r\n\xff\n", [b"a\r", b"\xff"]),
    ],
)
async def test_lines_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, expected: list[bytes]
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 2)
    path = tmp_path / "file"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert await collect(fd) == expected
    finally:
        os.close(fd)


async def test_a_line_of_a_pipe_comes_at_once() -> None:
    reading, writing = os.pipe()
    try:
        source = lines(reading, 100)
        os.write(writing, b"first\nsec")
        assert await anext(source) == [b"first"]
        following = asyncio.ensure_future(anext(source))
        os.write(writing, b"ond\n")
        assert await following == [b"second"]
        await source.aclose()
    finally:
        os.close(reading)
        os.close(writing)


async def test_a_line_without_an_end_is_given_up() -> None:
    fd = os.open("/dev/zero", os.O_RDONLY)
    try:
        with pytest.raises(UsageError, match="the first line is too long"):
            await collect(fd)
    finally:
        os.close(fd)


async def test_a_line_that_is_too_long_is_told_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 64)
    path = tmp_path / "file"
    path.write_bytes(b"a\nb\n" + b"c" * 200)
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(TallyError, match="line 3 is too long; those before it were taken") as raised:
            await collect(fd)
        assert not isinstance(raised.value, UsageError)  # whose exit code says that nothing was done
    finally:
        os.close(fd)


async def test_waiting_for_a_pipe_can_be_interrupted() -> None:
    reading, writing = os.pipe()
    try:
        waiting = asyncio.ensure_future(collect(reading))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not asyncio.get_running_loop().remove_reader(reading)
    finally:
        os.close(reading)
        os.close(writing)
