"""What an original bookie answered, byte for byte, played against one of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.bookies import Home, adds, talking
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.disk import Usage

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "v2.json").read_text())

STILL_OPEN = "no answer yet"  # the connection waits for the rest of a frame
# Where ours differs on purpose; docs/divergence.md says why. By name: the code it answers instead.
DIFFERENCES: dict[str, Code | str] = {
    "READ of ledger -1": Code.BAD_REQUEST,
    "ADD negative entry id -5": Code.BAD_REQUEST,
    "ADD entry id -0x1000": Code.BAD_REQUEST,
    "ADD negative ledger id": Code.BAD_REQUEST,
    "ADD that kills the original at its next start": Code.BAD_REQUEST,
    "length 5 MiB exactly, then nothing": STILL_OPEN,
    "length 5 MiB + 1": STILL_OPEN,
}


def with_code(answer: str, code: int) -> str:
    """The same ADD or READ answer with another code and no entry."""
    return f"00000018{answer[8:16]}{code:08x}{answer[24:56]}"


async def play(bookie: Bookie, exchanges: list[dict[str, str]]) -> list[str]:
    """The names of the exchanges that went another way than recorded."""
    wrong: list[str] = []
    for exchange in exchanges:
        name, recorded = exchange["name"], exchange["response"]
        async with talking(bookie) as peer:
            difference = DIFFERENCES.get(name)
            if difference == STILL_OPEN:
                peer.writer.write(bytes.fromhex(exchange["request"]))
                await peer.writer.drain()
                continue
            frame = await peer.ask(bytes.fromhex(exchange["request"]))
            got = frame.hex() if frame is not None else "closed"
            if isinstance(difference, Code):
                assert got != recorded, f"{name}: no difference any more"
                recorded = with_code(got if recorded.startswith("rc") else recorded, v2.NUMBERS[difference])
            if got != recorded:
                wrong.append(f"{name}: {got} instead of {recorded}")
    return wrong


async def test_the_recorded_exchanges_go_the_same_way(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await home.found()
    async with home.running() as bookie:
        for part in ("v2", "malformed", "poison"):
            exchanges = GOLDEN[part]
            assert exchanges
            assert await play(bookie, [{"response": "", **exchange} for exchange in exchanges]) == []


async def test_the_poison_frame_does_not_keep_ours_from_starting_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await home.found()
    bookie = await home.start()
    assert await play(bookie, GOLDEN["poison"]) == []
    bookie.failure.set_result(RuntimeError("killed"))  # no checkpoint: the next start replays the journal
    await bookie.stop()
    async with home.running() as again, talking(again) as peer:
        assert await peer.code(adds(1, [0])) == Code.OK


async def test_a_read_only_bookie_answers_as_recorded(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await home.found()
    async with home.running() as bookie:
        async with talking(bookie) as peer:
            assert await peer.code(adds(1, [0], b"abc")) == Code.OK
        bookie.guard.measured([Usage(total=1 << 50, free=1 << 40)])
        assert await play(bookie, GOLDEN["readonly"]) == []


@pytest.mark.parametrize("size", GOLDEN["sizes"], ids=lambda size: str(size["frame_length"]))
async def test_frames_as_long_as_recorded_with_the_originals_limit(tmp_path: Path, size: dict[str, Any]) -> None:
    """With its default of 5 MiB ours has the same limit; our own default is 10 KiB more."""
    home = Home(tmp_path)
    await home.found()
    frame = adds(1, [0], bytes(size["frame_length"] - 24 - 36))
    for limit, expected in ((5 * 1024 * 1024, size["answer"]), (home.settings.max_frame_bytes, "rc 0")):
        async with home.running(max_frame_bytes=limit) as bookie, talking(bookie) as peer:
            answer = await peer.ask(frame)
            assert ("closed" if answer is None else f"rc {int.from_bytes(answer[8:12], 'big')}") == expected
