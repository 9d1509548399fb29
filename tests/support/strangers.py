"""A handshake of a bookie without the bookie: what a stranger sends is served by values alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from tallystick.bookkeeper.bookie.handshake import Handshake
from tallystick.bookkeeper.bookie.permissions import PeerIdentity
from tallystick.bookkeeper.bookie.wires import ServeResult, Wires
from tallystick.bookkeeper.wire.auth import DIGEST_MD5, Exchange, Step
from tallystick.bookkeeper.wire.digest_md5 import DigestServer
from tallystick.bookkeeper.wire.scram import ScramServer

MAX_FRAME_BYTES = 5 * 1024 * 1024


@dataclass
class OpenGate:
    """What a bookie asks for; who came in is in ``came``."""

    tls: bool = False
    must_encrypt: bool = False
    asks_who: bool = True
    must_authenticate: bool = True
    came: list[PeerIdentity] = field(default_factory=list)
    refused: int = 0

    def exchange(self, plugin: str) -> Exchange | None:
        def secrets(user: str) -> tuple[str, ...]:
            return ("secret",) if user == "bookkeeper" else ()

        if plugin == DIGEST_MD5:
            return DigestServer(secrets, "nonce")
        return ScramServer(secrets, "a-nonce-of-theirs", lambda _: b"0" * 16) if plugin.startswith("scram") else None

    def user(self, plugin: str, step: Step, peer: str) -> PeerIdentity | None:
        return PeerIdentity("user", step.user)

    def certificate(self, name: str) -> PeerIdentity | None:
        return PeerIdentity("certificate", name)

    def admit(self, identity: PeerIdentity, peer: str) -> Wires:
        self.came.append(identity)
        nobody = cast(Any, object())
        return Wires(nobody, nobody, max_frame_bytes=MAX_FRAME_BYTES)

    def secret(self, step: Step) -> str:
        return "secret"

    def lets_in(self, identity: PeerIdentity, secret: str, wires: Wires) -> bool:
        return True

    def refuse(self, peer: str, reason: str) -> None:
        self.refused += 1


def serve_all(handshake: Handshake, data: bytes) -> ServeResult:
    """Serve what a stranger sends as a session does: again and again, until more is needed or it is over."""
    position, result = 0, ServeResult.bounded(short=False)
    while position < len(data):
        result = handshake.serve(data[position:])
        position += result.position
        if result.refusal is not None or result.next_wire is not None or result.starts_tls or not result.position:
            break
    return result
