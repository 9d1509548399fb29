"""What a peer may do at a bookie: each operation with one permission, by both versions, before the storage hears."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bookies import KEY, Home, Peer, adds, read, talking
from support.certificates import secret_file
from support.keyed import ask_v3
from support.v3_frames import RECOVERY, adds_v3, lac_body, poll_v3, read_v3, request_v3
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v2 import RequestFlag

V3 = {
    "read": (
        read_v3(1, 0),
        read_v3(1, -1),
        poll_v3(1, -1, 10),
        request_v3(v3.ReadLacRequest, 1),
        request_v3(v3.EntryListRequest, 1),
        request_v3(v3.BookieInfoRequest),
    ),
    "append": (
        adds_v3(1, [1]),
        request_v3(v3.WriteLacRequest, 1, 0, KEY, lac_body(1, 0)),  # of a ledger that it appended to
        request_v3(v3.ForceRequest, 1),
    ),
    "recover": (read_v3(1, 0, KEY), adds_v3(1, [2], **RECOVERY)),
    "repair": (adds_v3(1, [2], **RECOVERY),),
    "admin": (request_v3(v3.BookieInfoRequest, v3.TOTAL_BYTES | v3.ADMINISTRATOR),),
}
V2 = {
    "read": (read(1, 0), read(1, -1), v2.BatchReadFrame(1, 0, 1, 1, 1 << 16).encode()),
    "append": (adds(1, [1]),),
    "recover": (
        read(1, 0, KEY),
        v2.BatchReadFrame(1, 0, 1, 1, 1 << 16, KEY, RequestFlag.FENCE).encode(),
        adds(1, [2], flags=RequestFlag.RECOVERY_ADD),
    ),
    "repair": (adds(1, [2], flags=RequestFlag.RECOVERY_ADD),),
    "admin": (),
}
KINDS = ("read", "append", "recover", "repair", "admin")


async def codes_of(peer: Peer, *, is_v3: bool) -> dict[bytes, Code]:
    """The code of each request of all."""
    frames = dict.fromkeys(frame for kind in KINDS for frame in (V3 if is_v3 else V2)[kind])
    found = {}
    for frame in frames:
        if is_v3:
            answer = await ask_v3(peer, frame)
            assert answer is not None
            found[frame] = answer.code
        else:
            response_frame = await peer.ask(frame)
            assert response_frame is not None
            response = v2.decode_response(response_frame[4:])
            assert isinstance(response, v2.Response | v2.BatchReadResponse)
            found[frame] = response.code
    return found


@pytest.mark.rule("N4")
@pytest.mark.parametrize("is_v3", [True, False], ids=["v3", "v2"])
@pytest.mark.parametrize("allowed", [*KINDS, ""])
async def test_n4_each_operation_needs_one_named_permission(
    home: Home, tmp_path: Path, allowed: str, is_v3: bool
) -> None:
    """The others are refused, and leave no trace in the storage."""
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(1, [0])) == Code.OK
    users = secret_file(tmp_path / "users", "[users]\nbookkeeper = 'secret'\n")
    permissions = secret_file(tmp_path / "permissions", f"anonymous = {[allowed] if allowed else []!r}\n")
    security = SecuritySettings(
        mechanisms=("sasl",), users_file=users, permissions_file=permissions, allow_anonymous=True
    )
    frames = V3 if is_v3 else V2
    permitted = {
        frame for kind in (KINDS if allowed == "admin" else [allowed] if allowed else []) for frame in frames[kind]
    }
    async with home.running(security=security) as bookie, talking(bookie) as peer:
        answers = await codes_of(peer, is_v3=is_v3)
        refused = {frame for frame, code in answers.items() if code == Code.UNAUTHORIZED}
        assert refused == set(answers) - permitted
        assert bool(bookie.counts.fences) == (allowed in ("recover", "admin"))
        stored = bookie.counts.adds - bookie.counts.adds_failed
        assert bool(stored) == (allowed in ("append", "recover", "repair", "admin"))


@pytest.mark.rule("N4")
async def test_n4_runs_of_adds_and_reads_are_refused_one_by_one(home: Home, tmp_path: Path) -> None:
    users = secret_file(tmp_path / "users", "[users]\nbookkeeper = 'secret'\n")
    permissions = secret_file(tmp_path / "permissions", "anonymous = []\n")
    security = SecuritySettings(
        mechanisms=("sasl",), users_file=users, permissions_file=permissions, allow_anonymous=True
    )
    async with home.running(security=security) as bookie, talking(bookie) as peer:
        peer.writer.write(adds(1, range(100)) + b"".join(read(1, entry) for entry in range(100)))
        for _ in range(200):
            frame = await peer.frame()
            assert frame is not None
            answer = v2.decode_response(frame[4:])
            assert isinstance(answer, v2.Response)
            assert answer.code == Code.UNAUTHORIZED
        counts = bookie.counts
        assert (counts.adds - counts.adds_failed, counts.reads - counts.reads_failed) == (0, 0)


@pytest.mark.rule("N4")
@pytest.mark.parametrize("appended_by", ["v2", "v3", "recovery", "nobody"])
async def test_n4_an_explicit_lac_of_anothers_ledger_needs_recover(
    home: Home, tmp_path: Path, appended_by: str
) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(1, [0])) == Code.OK
    users = secret_file(tmp_path / "users", "[users]\nbookkeeper = 'secret'\n")
    lac = request_v3(v3.WriteLacRequest, 1, 0, KEY, lac_body(1, 0))
    for allowed, others in (("append", "repair"), ("append", "recover")):
        permissions = secret_file(tmp_path / "permissions", f"anonymous = {[allowed, others]!r}\n")
        security = SecuritySettings(
            mechanisms=("sasl",), users_file=users, permissions_file=permissions, allow_anonymous=True
        )
        async with home.running(security=security) as bookie, talking(bookie) as v3_peer, talking(bookie) as v2_peer:
            if appended_by == "v2":
                assert await v2_peer.code(adds(1, [3])) == Code.OK
            elif appended_by != "nobody":
                frame = adds_v3(1, [4], **(RECOVERY if appended_by == "recovery" else {}))
                added = await ask_v3(v3_peer, frame)
                assert added is not None and added.code == Code.OK
            answer = await ask_v3(v3_peer, lac)
            may = others == "recover" or appended_by in ("v2", "v3")
            assert answer is not None and answer.code == (Code.OK if may else Code.UNAUTHORIZED)
