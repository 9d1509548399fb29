"""Who judges a life with keys, by all bytes that are written, at the moment in which they are, and by all events.

A1  Nobody without a secret that counts is let in, or has a request carried out.
A2  What was heard on the wire and is sent again is not let in, and carries nothing out: a signed request counts once.
A3  When the faults have ended, who has a secret that counts is served.
A4  No nonce, no name of a connection that signs, and no number of it comes twice.
A5  No secret is in an event, a note, or among what is written.
A6  A client shows itself by the strongest that both sides take and by nothing else, and sends no request to who has
    not shown that it knows the secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.wires import V3_FIRST_BYTE
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire.auth import decode_message
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import AuthResponse, RefusedResponse, decode_response
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, LedgerMetadata
from tallystick.runtime.events import Event
from tallystick.sim.cluster_hosts import PORT
from tallystick.sim.handshakes_keys import LATE_S, KeyHolder
from tallystick.sim.handshakes_signed import SignedRequests
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.trace import Trace
from tallystick.sim.virtual.transport import SimTransport

IMPOSTOR = "impostor"  # the name of the process
_NONCE = re.compile(rb'(?:^|[,"])(?:nonce="|r=)([^",]+)')
_CLIENT_NONCE = re.compile(rb'(?:cnonce="|^n,,n=[^,]*,r=)([^",]+)')
_PROOFS = (b"v=", b"rspauth=")  # what a bookie says to who has shown the secret
_SERVER_NONCE_CHARACTERS = 24  # at the end of what SCRAM's bookie says: its own, and no part of the client's


class _Connection:
    """One to a bookie: what is not whole of either side, and whether its client was let in."""

    def __init__(self) -> None:
        self.rests = {True: b"", False: b""}  # by: is it the bookie's
        self.is_in = False


class HandshakeJudge:
    """``fail`` keeps the first violation, and stops the life."""

    def __init__(self, trace: Trace, now: Callable[[], float]) -> None:
        self._trace, self._now = trace, now
        self.violation: str | None = None
        self.promise_count = 0
        self.stop: Callable[[], object] = lambda: None
        self.secrets: list[str] = []  # of the life
        self.offered: tuple[str, ...] = ()  # by bookies
        self.holders: dict[str, KeyHolder] = {}  # by address
        self.signed = SignedRequests(self.fail, trace)
        self._connections: dict[frozenset[tuple[str, int]], _Connection] = {}
        self._nonces: dict[bytes, None] = {}

    def fail(self, promise: str, what: str) -> NoReturn:
        """Raise Violation."""
        self.violation = self.violation or f"{promise}: {what}"
        self.stop()
        raise Violation(f"{promise}: {what}")

    # What is told of bookies and of the metadata says nothing about keys.

    def damaged(self, bookie: BookieId, *, forgets: bool) -> None: ...

    def collected(self, bookie: BookieId, storage: Storage) -> None: ...

    def made(self, ledger: LedgerId, metadata: LedgerMetadata, creation: Creation) -> None: ...

    def stored(self, ledger: LedgerId, metadata: LedgerMetadata | None) -> None: ...

    def on_event(self, event: Event) -> None:
        """Hear of an event of whatever process."""
        self._keeps_secret(str(event).encode(), f"the event {event.kind!r}")

    def wrote(self, end: SimTransport, data: bytes) -> None:
        """Hear what an end of a connection has written."""
        self._keeps_secret(data, f"what {end.here[0]} writes")
        if PORT not in (end.here[1], end.there[1]):
            self.signed.wrote(end, data)
            return
        if IMPOSTOR in (end.process.name, end.peer.process.name):
            if end.process.name != IMPOSTOR:
                self._frames(end, data, _Connection(), self._said_to_impostor)
            return
        connection = self._connections.setdefault(frozenset((end.here, end.there)), _Connection())
        if not connection.is_in:
            self._frames(end, data, connection, self._answered if end.here[1] == PORT else self._asked)
        elif end.here[1] == PORT:
            self._require_right(end, "is served")

    def _keeps_secret(self, data: bytes, where: str) -> None:
        for secret in self.secrets:
            if secret.encode() in data:
                self.fail("A5", f"a secret is in {where}")

    def _frames(
        self,
        end: SimTransport,
        data: bytes,
        connection: _Connection,
        heard: Callable[[SimTransport, _Connection, bytes], None],
    ) -> None:
        is_bookie = end.here[1] == PORT
        data = connection.rests[is_bookie] + data
        while len(data) > 4 and (stop := 4 + int.from_bytes(data[:4], "big")) <= len(data):
            body, data = data[4:stop], data[stop:]
            heard(end, connection, body)
        connection.rests[is_bookie] = data

    # What clients say.

    def _asked(self, end: SimTransport, connection: _Connection, body: bytes) -> None:
        holder = self.holders.get(end.here[0])
        if holder is None:  # who hears and repeats may say anything
            return
        if not connection.is_in:
            self._require_auth(end, holder, body)

    def _said_to_impostor(self, end: SimTransport, connection: _Connection, body: bytes) -> None:
        if holder := self.holders.get(end.here[0]):
            self._require_auth(end, holder, body)

    def _require_auth(self, end: SimTransport, holder: KeyHolder, body: bytes) -> None:
        request = v3.decode_request(body) if body[0] == V3_FIRST_BYTE else None
        if not isinstance(request, v3.AuthRequest):
            self.fail("A6", f"{end.process.name} sends {request} to who has not shown that it knows the secret")
        plugin = request.plugin.decode()
        if plugin != holder.plan.plugin(self.offered):
            takes = f"it takes {holder.plan.mechanisms}, and the bookie {self.offered}"
            self.fail("A6", f"{end.process.name} shows itself by {plugin}: {takes}")
        if match := _CLIENT_NONCE.search(request.payload):
            self._note_nonce(match[1], end.process.name)

    # What bookies say.

    def _answered(self, end: SimTransport, connection: _Connection, body: bytes) -> None:
        if connection.is_in:
            self._require_right(end, "is served")
            return
        token = self._token(end, body)
        if token is None:
            return
        if token.startswith(_PROOFS):
            connection.is_in = True
            self._require_right(end, "is let in")
            self.promise_count += 1
            self._trace.note("let in", end.there[0])
        elif match := _NONCE.search(token):
            self._note_nonce(match[1][-_SERVER_NONCE_CHARACTERS:], end.process.name)

    def _token(self, end: SimTransport, body: bytes) -> bytes | None:
        """Return the token of an AUTH that goes on; None for a refusal."""
        if body[0] != V3_FIRST_BYTE:
            answer = v2.decode_response(body)
            if not isinstance(answer, v2.AuthResponse):
                self.fail("A1", f"{end.there[0]} has a request of version 2 carried out before it is known: {answer}")
            return self._taken(end, *decode_message(answer.message))
        response = decode_response(body)
        if isinstance(response, AuthResponse) and response.code == Code.OK:
            return self._taken(end, response.plugin.decode(errors="replace"), response.payload)
        if not isinstance(response, RefusedResponse) or response.code not in (Code.UNAUTHORIZED, Code.BAD_REQUEST):
            self.fail("A1", f"{end.there[0]} has a request carried out before it is known: {response}")
        self._trace.note("refused", end.there[0])
        return None

    def _taken(self, end: SimTransport, plugin: str, token: bytes) -> bytes:
        if plugin not in self.offered:
            self.fail("A1", f"a bookie goes on with {end.there[0]} by {plugin}: it takes {self.offered}")
        return token

    def _require_right(self, end: SimTransport, what: str) -> None:
        host = end.there[0]
        holder = self.holders.get(host)
        if holder is None:
            self.fail("A2", f"{host}, who only repeats what it heard, {what}")
        if self._now() > holder.valid_until + LATE_S:
            self.fail("A1", f"{holder.plan.kind} {host} {what}")

    def _note_nonce(self, nonce: bytes, who: str) -> None:
        if nonce in self._nonces:
            self.fail("A4", f"{who} uses a nonce that was used before")
        self._nonces[nonce] = None
