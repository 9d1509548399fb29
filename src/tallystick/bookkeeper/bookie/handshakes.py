"""What decides who comes in at a bookie: files of users, permissions and certificates, and bounds of strangers.

The files are looked at when somebody comes, once a second at most. One that was good and is not any more changes
nothing, and that is said; a bookie does not start with one that is no good.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial

from tallystick.bookkeeper.bookie.handshake import Handshake
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.permissions import (
    ANONYMOUS,
    PeerIdentity,
    Permission,
    Permissions,
    parse_permissions,
)
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.bookie.users import NOBODY, Salts, Users, parse_users
from tallystick.bookkeeper.bookie.wires import Wires
from tallystick.bookkeeper.bookie.written import must_be_noted
from tallystick.bookkeeper.wire.auth import CERTIFICATE, DIGEST_MD5, SCRAM_SHA_256, Exchange, Step
from tallystick.bookkeeper.wire.digest_md5 import DigestServer
from tallystick.bookkeeper.wire.scram import ScramServer, prepare
from tallystick.runtime.certificates import TlsContexts, server_context
from tallystick.runtime.handshake_turns import HandshakeTurns
from tallystick.runtime.once import Once
from tallystick.runtime.outside import Outside
from tallystick.runtime.peer_counts import MOST_PEERS, PeerCounts
from tallystick.runtime.tls import Ready, TlsBuffer, TlsConnection
from tallystick.runtime.watched_text import WatchedText

HANDSHAKE_S = 5.0  # in which a peer shows who it is, or goes
MOST_OF_A_HOST = 256  # connections whose peer is not known yet: a broker opens up to 64 to a bookie at once
STEPS_EACH_TURN = 4  # of TLS handshakes: some ten milliseconds

_Served = tuple[Permission, PeerIdentity | None]  # what wires are made for; None: of all that have the permission


class Handshakes:
    """Begins and ends the handshakes of a bookie's connections. ``wires_for`` makes wires by what they permit,
    and for each identity whose own ledgers are told from others'."""

    def __init__(
        self,
        settings: SecuritySettings,
        wires_for: Callable[[Permission], Wires],
        outside: Outside,
        counts: Counts,
    ) -> None:
        """Raises UsageError for files that cannot be used."""
        self._settings, self._wires_for, self._counts = settings, wires_for, counts
        clock, self._events = outside.clock, outside.events
        self.tls = settings.tls
        self.must_encrypt = settings.tls and settings.tls_required
        self.asks_who = bool(settings.mechanisms)
        self.must_authenticate = settings.authenticates
        self.peers = PeerCounts()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reports = Once()
        self._unknown: Counter[str] = Counter()  # connections by host
        self._ids, self._salts = re.compile(settings.sasl_ids), Salts()
        self._wires: OrderedDict[_Served, Wires] = OrderedDict()
        self._buffer, self._turns = TlsBuffer(), HandshakeTurns(STEPS_EACH_TURN)
        every_s = settings.tls_look_s
        self._users = self._permissions = None
        if settings.users_file is not None:
            self._users = WatchedText(
                settings.users_file, self._read_users, outside, self._file_failed, every_s=every_s
            )
        if settings.permissions_file is not None:
            self._permissions = WatchedText(
                settings.permissions_file, parse_permissions, outside, self._file_failed, every_s=every_s
            )
        self._contexts = None
        if settings.tls:
            asks = settings.tls_ask_certificate
            self._contexts = TlsContexts(
                settings.files,
                lambda files: server_context(files, require_peer=asks),
                clock,
                self._file_failed,
                every_s=every_s,
            )

    def begin(self, host: str) -> Handshake | None:
        """Begin the handshake of a new connection; None if too many of this host are in theirs. ``end`` it once."""
        if self._unknown[host] >= MOST_OF_A_HOST:
            self._counts.handshakes_refused += 1
            return None
        self._unknown[host] += 1
        return Handshake(self, host)

    def end(self, host: str) -> None:
        """The peer is known, or gone."""
        self._unknown[host] -= 1
        if not self._unknown[host]:
            del self._unknown[host]

    def encrypt(
        self, host: str, transport: asyncio.Transport, protocol: asyncio.BufferedProtocol, ready: Ready
    ) -> TlsConnection:
        """Return the encrypted connection over a plain one of a host. ``begin`` it."""
        assert self._contexts is not None, "START_TLS was refused without it"
        in_turn = partial(self._turns.run, protocol, host)
        return TlsConnection(transport, protocol, self._contexts.current(), self._buffer, ready, in_turn=in_turn)

    def close(self) -> None:
        """Go on with no handshake, and look at no file."""
        self._turns.close()
        if self._timer is not None:
            self._timer.cancel()
        for file in (self._users, self._permissions):
            if file is not None:
                file.close()

    # The gate.

    def exchange(self, plugin: str) -> Exchange | None:
        """Begin an exchange as ``Gate`` says."""
        if plugin == CERTIFICATE or plugin not in self._settings.mechanisms:
            return None
        nonce = secrets.token_urlsafe(24)
        if plugin == DIGEST_MD5:
            return DigestServer(self._secrets, nonce)
        return ScramServer(self._secrets, nonce, self._salts.of)

    def _read_users(self, text: str, path: str) -> Users:
        """Read users, on a thread."""
        users = parse_users(text, path)
        if SCRAM_SHA_256 in self._settings.mechanisms:
            prepare(users, self._salts.of)
        return users

    def _secrets(self, user: str) -> tuple[str, ...]:
        users = self._users.value() if self._users is not None else NOBODY
        return tuple(users.get(user, ()))

    def user(self, plugin: str, step: Step, peer: str) -> PeerIdentity | None:
        """Return the identity as ``Gate`` says."""
        if plugin == DIGEST_MD5 and not self._ids.fullmatch(step.user):
            return None
        identity = PeerIdentity("user", step.user)
        if step.place:
            self.peers.count(peer, str(identity), "old secret")
        return identity

    def certificate(self, name: str) -> PeerIdentity | None:
        """Return the identity as ``Gate`` says."""
        return PeerIdentity("certificate", name) if CERTIFICATE in self._settings.mechanisms else None

    def admit(self, identity: PeerIdentity, peer: str) -> Wires:
        """Count a peer, and return its wires."""
        if self.asks_who:
            self.peers.count(peer, str(identity), "came")
            if identity is ANONYMOUS:
                self._counts.anonymous += 1
        served = self._served(identity)
        if served not in self._wires:
            self._wires[served] = self._wires_for(served[0])
            if len(self._wires) > MOST_PEERS:
                self._wires.popitem(last=False)
        self._wires.move_to_end(served)
        return self._wires[served]

    def lets_in(self, identity: PeerIdentity, secret: str, wires: Wires) -> bool:
        """Return what ``Gate`` says."""
        if identity.kind == "user" and secret not in self._secrets(identity.name):
            return False
        return self._wires.get(self._served(identity)) is wires

    def _served(self, identity: PeerIdentity) -> _Served:
        permission = (self._permissions.value() if self._permissions is not None else Permissions()).of(identity)
        return permission, identity if must_be_noted(permission) else None

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` when the files of users or permissions say something else; until ``close``."""
        before = self._said

        def compare() -> None:
            nonlocal before
            now = self._said
            if any(one is not other for one, other in zip(before, now, strict=True)):
                before = now
                changed()

        def look() -> None:
            compare()
            self._timer = self._loop.call_later(self._settings.tls_look_s, look)

        for file in (self._users, self._permissions):
            if file is not None:
                file.changed = compare
        self._timer = self._loop.call_later(self._settings.tls_look_s, look)

    @property
    def _said(self) -> tuple[object, object]:
        files = self._users, self._permissions
        users, permissions = (None if file is None else file.value() for file in files)
        return users, permissions

    def refuse(self, peer: str, reason: str) -> None:
        """Count a peer that did not show who it is; say so once for a reason."""
        self._counts.handshakes_failed += 1
        self.peers.count(peer, "unknown", "refused")
        if self._reports.is_new((peer, reason)):
            self._events.emit("peer not let in", peer=peer, reason=reason)

    def _file_failed(self, reason: str) -> None:
        self._events.emit("security file not read", reason=reason)
