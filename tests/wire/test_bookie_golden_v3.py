"""What an original bookie answered in version 3, byte for byte, played against one of ours in the same order."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from support.bookies import Home, Peer, adds, talking
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import (
    AddResponse,
    BookieInfoResponse,
    ReadLacResponse,
    ReadResponse,
    Response,
    WriteLacResponse,
    decode_response,
    encode_response,
)
from tallystick.runtime.disk import Usage

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "v3.json").read_text())

NEVER_SEEN = 5100
LAC_BODY = bytes.fromhex("0000000000001388000000000000000268f33163")  # of ledger 5000, LAC 2
LAST_ENTRY = bytes.fromhex("00000000000013880000000000000002000000000000000100000000000000096d97c247616263")
# Where ours differs on purpose; docs/divergence.md says why. By name: what it answers instead.
DIFFERENCES: dict[str, Response] = {
    "WRITE_LAC of a ledger never seen (5100)": WriteLacResponse(6, Code.NO_LEDGER, NEVER_SEEN),
    "READ_LAC of 5100 (explicit LAC only)": ReadLacResponse(7, Code.NO_ENTRY, NEVER_SEEN),
    "READ_LAC after lower WRITE_LAC": ReadLacResponse(7, Code.OK, 5000, LAC_BODY, LAST_ENTRY),
    "ADD ids in request and body differ (request 4, body 3)": AddResponse(20, Code.BAD_REQUEST, 5000, 4),
    "READ 3 after that": ReadResponse(20, Code.NO_ENTRY, 5000, 3),
    "ADD with 5-byte masterKey for a new ledger": AddResponse(1, Code.UNAUTHORIZED, 9001, 0),
    "ADD with empty masterKey for a new ledger": AddResponse(1, Code.UNAUTHORIZED, 9002, 0),
}


async def play(bookie: Bookie, exchanges: list[dict[str, str]]) -> list[str]:
    """The names of the exchanges that went another way than recorded."""
    wrong = list[str]()
    async with AsyncExitStack() as stack:
        peer: Peer | None = None
        for exchange in exchanges:
            name, recorded = exchange["name"], exchange["response"]
            if peer is None or "fresh connection" in name:
                peer = await stack.enter_async_context(talking(bookie))
            frame = await peer.ask(bytes.fromhex(exchange["request"]))
            got = frame.hex() if frame is not None else "closed"
            if frame is None:
                peer = None
            if (difference := DIFFERENCES.get(name)) is not None:
                assert got != recorded, f"{name}: no difference any more"
                recorded = encode_response(difference).hex()
            if got != recorded:
                wrong.append(f"{name}: {got} instead of {recorded}")
    return wrong


async def test_the_recorded_exchanges_go_the_same_way(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await home.found()
    async with home.running() as bookie:
        (asked,) = (each for each in GOLDEN["v3"] if each["name"] == "GET_BOOKIE_INFO 3")
        info = decode_response(bytes.fromhex(asked["response"])[4:])
        assert isinstance(info, BookieInfoResponse) and info.total_bytes and info.free_bytes
        bookie.guard.measured([Usage(total=info.total_bytes, free=info.free_bytes)])
        assert DIFFERENCES.keys() <= {exchange["name"] for exchange in GOLDEN["v3"]}
        assert await play(bookie, GOLDEN["v3"]) == []


async def test_a_read_only_bookie_answers_as_recorded(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await home.found()
    async with home.running() as bookie:
        async with talking(bookie) as peer:
            assert await peer.code(adds(1, [0], b"abc")) == Code.OK
        bookie.guard.measured([Usage(total=1 << 50, free=1 << 40)])
        assert await play(bookie, GOLDEN["readonly"]) == []
