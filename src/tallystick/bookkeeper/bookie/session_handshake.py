"""What a session does until its peer is known: its wire is the handshake's, for a while, and TLS may begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tallystick.bookkeeper.bookie.handshakes import HANDSHAKE_S, Handshakes
from tallystick.bookkeeper.bookie.wires import ServeResult, Wires
from tallystick.runtime.certificates import common_name
from tallystick.runtime.tls import Ready, TlsConnection


class SessionHandshake:
    """The handshake of one connection. ``end`` it when the peer is known, or gone."""

    def __init__(self, handshakes: Handshakes, host: str, too_late: Callable[[], None]) -> None:
        """``too_late`` is called when the peer has not shown in time who it is."""
        self._handshakes, self._host = handshakes, host
        self.wire = handshakes.begin(host)  # None: too many of this host are in theirs
        self._is_over = self.wire is None
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_S, too_late)
        self._tls: TlsConnection | None = None

    @property
    def is_over(self) -> bool:
        """Whether requests are served."""
        return self._is_over

    @property
    def held_bytes(self) -> int:
        """Bytes that are not decrypted yet."""
        return self._tls.held_bytes if self._tls is not None else 0

    @property
    def wires(self) -> Wires | None:
        """The wires of a peer that is known."""
        return self.wire.wires if self.wire is not None else None

    @property
    def is_revoked(self) -> bool:
        """Whether the peer was known, and would not come in so any more."""
        return self.wire is not None and self.wire.is_revoked

    def end(self) -> None:
        """Leave the place of a stranger. Once or more."""
        self._timer.cancel()
        if not self._is_over:
            self._is_over = True
            self._handshakes.end(self._host)

    def encrypt(self, transport: asyncio.Transport, protocol: asyncio.BufferedProtocol, ready: Ready) -> TlsConnection:
        """Return what encrypts from now on. ``begin`` it."""
        self._tls = self._handshakes.encrypt(self._host, transport, protocol, ready)
        return self._tls

    def encrypted(self) -> ServeResult:
        """TLS's own handshake is over. Returns what is to be said now."""
        assert self._tls is not None and self.wire is not None, "it was asked to encrypt"
        return self.wire.encrypted(common_name(self._tls.peer_certificate))
