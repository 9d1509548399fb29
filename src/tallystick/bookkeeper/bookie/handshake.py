"""A connection to a bookie until its peer is known: START_TLS and AUTH alone are served, nothing else is looked into.

::

    plain ──START_TLS──► TLS's first record ──► encrypted ──AUTH … AUTH──► known: its requests are served as it may
      └────────────(tlsRequired=false)──────────────┘  └─(certificate, or allowAnonymous)─┘

An original client does not wait for its START_TLS: its first AUTH, which has an empty token of SASL, comes in plain
bytes before or behind it. That one is kept, and answered when all is encrypted; any other byte ends the connection.

Whatever else comes first is answered EUA in version 3, and ends the connection in version 2, which is all that version
lets a client understand. ``Handshake`` is the wire of such a connection; what it decides by is in ``Handshakes``.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.permissions import ANONYMOUS, PeerIdentity
from tallystick.bookkeeper.bookie.wires import LENGTH_BYTES, V3_FIRST_BYTE, ServeResult, Wires
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.auth import DISABLED, Exchange, Step, decode_message, encode_message
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import RemoteProtocolError

MAX_BYTES = 64 * 1024  # of a request before its peer is known
MOST_REFUSED = 16  # requests before the peer is known; then its connection ends
_TLS_RECORD = 0x16  # the first byte of TLS's first record: no length of a frame here begins so
_HEAD_BYTES = 10  # these say what a request is: the operation of version 3 is the last of them


class Gate(Protocol):
    """What all connections of a bookie have in common here."""

    tls: bool
    must_encrypt: bool
    asks_who: bool
    must_authenticate: bool

    def exchange(self, plugin: str) -> Exchange | None:
        """Begin an exchange of a plugin; None if it is none that is taken here."""
        ...

    def user(self, plugin: str, step: Step, peer: str) -> PeerIdentity | None:
        """Return who has shown a secret; None if that one is not let in."""
        ...

    def certificate(self, name: str) -> PeerIdentity | None:
        """Return who has shown a certificate of this common name; None if that does not count here."""
        ...

    def admit(self, identity: PeerIdentity, peer: str) -> Wires:
        """Count a peer that came in; return the wires that let it do what it may."""
        ...

    def lets_in(self, identity: PeerIdentity, secret: str, wires: Wires) -> bool:
        """Return whether who came in so would come in now, with this secret, and might do the same."""
        ...

    def refuse(self, peer: str, reason: str) -> None:
        """Count a peer that did not show who it is."""
        ...


@dataclass
class _Refusal:
    """What a request is answered with: a code in version 3, in version 2 the end of the connection."""

    code: Code
    reason: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class _Early:
    """An AUTH with an empty token that came in plain bytes; ``header`` is that of version 3, else it was version 2."""

    plugin: str
    header: v3.Header | None
    version: int = v2.VERSION


class Handshake:
    """See the module. ``wires`` is None until the peer is known."""

    def __init__(self, gate: Gate, peer: str) -> None:
        self._gate, self._peer = gate, peer
        self._is_encrypted = self._awaits_tls = False
        self._has_begun = False  # an AUTH was answered: START_TLS comes too late
        self._early: _Early | None = None
        self._plugin = ""
        self._exchange: Exchange | None = None
        self._refused = 0
        self._identity, self._secret = ANONYMOUS, ""
        self.wires: Wires | None = None

    @property
    def is_revoked(self) -> bool:
        """Whether the peer was known, and would not come in so any more."""
        return self.wires is not None and not self._gate.lets_in(self._identity, self._secret, self.wires)

    def _admit(self, identity: PeerIdentity) -> Wires:
        self._identity = identity
        self.wires = self._gate.admit(identity, self._peer)
        return self.wires

    def encrypted(self, certificate_name: str) -> ServeResult:
        """What comes now was encrypted; ``certificate_name``: of the certificate that the peer has shown, "" if none.

        Returns what is to be said now.
        """
        self._is_encrypted, self._awaits_tls = True, False
        identity = self._gate.certificate(certificate_name) if certificate_name else None
        if not self._gate.asks_who:
            identity = ANONYMOUS
        result = ServeResult.bounded(short=False)
        if identity is not None:
            self._admit(identity)
        if self._early is not None:
            early, self._early = self._early, None
            if early.header is not None:
                self._auth_v3(early.header, early.plugin, b"", result)
            else:
                self._auth_v2(early.version, early.plugin, b"", result)
        return result

    # The wire.

    def serve(
        self,
        data: bytes,
        *,
        reads: bool = True,
        short: bool = False,
        has_time: Callable[[], bool] = lambda: True,
        behind: AbstractSet[LedgerId] = frozenset(),
    ) -> ServeResult:
        """Serve as ``Wire`` says; ``next_wire`` is that of a peer that is known now."""
        result = ServeResult.bounded(short=short, behind=behind)
        try:
            while result.next_wire is None and result.refusal is None and result.position < len(data):
                if (result.position and not has_time()) or not self._one_frame(data, result.position, result):
                    break
        except RemoteProtocolError as error:
            result.refusal = error.with_traceback(None)  # which has all that came, until cycles are collected
        return result

    def settle(
        self, frames: bytes, verdict: Verdict, *, short: bool = False, has_time: Callable[[], bool] = lambda: True
    ) -> ServeResult:
        """Never called: nothing here waits for a look."""
        raise AssertionError("nothing waits for a look before its peer is known")

    def is_read(self, data: bytes) -> bool:
        """Return what ``Wire`` says."""
        return False

    def _one_frame(self, data: bytes, start: int, result: ServeResult) -> bool:
        """Serve one frame. Returns False if it is not whole, or if another wire serves it."""
        if self._awaits_tls and data[start] == _TLS_RECORD:
            result.starts_tls = True
            return False
        head = data[start : start + _HEAD_BYTES]
        if len(head) < _HEAD_BYTES:
            result.need = _HEAD_BYTES
            return False
        size, is_v3 = int.from_bytes(head[:LENGTH_BYTES], "big"), head[LENGTH_BYTES] == V3_FIRST_BYTE
        operation = head[-1] if is_v3 else head[5] if head[4] else head[7]
        is_ours = operation in (v3.Operation.AUTH, v3.Operation.START_TLS) if is_v3 else operation == v2.Op.AUTH
        if not is_ours and self._may_be_anonymous:
            result.next_wire = self._admit(ANONYMOUS).spoken(head)
            return False
        if not _HEAD_BYTES - LENGTH_BYTES <= size <= MAX_BYTES:
            raise RemoteProtocolError("a request before the peer is known has no length that it may have", bytes=size)
        end = start + LENGTH_BYTES + size
        if len(data) < end:
            result.need = LENGTH_BYTES + size
            return False
        body = memoryview(data)[start + LENGTH_BYTES : end]
        result.position = end
        if is_v3:
            self._serve_v3(body, result)
        else:
            self._serve_v2(body, result)
        return True

    @property
    def _may_be_anonymous(self) -> bool:
        return not self._gate.must_authenticate and self._may_show_itself

    @property
    def _may_show_itself(self) -> bool:
        return self._is_encrypted or not (self._gate.must_encrypt or self._awaits_tls)

    def _serve_v3(self, body: memoryview, result: ServeResult) -> None:
        number, header = v3.decode_head(body)
        operation = v3.OPERATIONS.get(number)
        if operation is None:
            raise RemoteProtocolError("a request has an unknown operation", operation=number)
        if operation is v3.Operation.START_TLS:
            refusal = self._start_tls(header, result)
        elif operation is v3.Operation.AUTH:
            request = v3.decode_request(body)
            assert isinstance(request, v3.AuthRequest)
            self._auth_v3(header, request.plugin.decode(errors="replace"), request.payload, result)
            return
        elif self._awaits_tls:
            raise RemoteProtocolError("a request came behind START_TLS")
        else:
            refusal = _Refusal(Code.UNAUTHORIZED, "a request came before the peer is known")
        if refusal is not None:
            self._refuse_v3(header, operation, refusal, result)

    def _refuse_v3(self, header: v3.Header, operation: v3.Operation, refusal: _Refusal, result: ServeResult) -> None:
        self._refused += 1
        refused = responses.RefusedResponse(header.request_id, operation, refusal.code)
        result.add_response(responses.encode_response(refused))
        if refusal.ends or self._refused >= MOST_REFUSED:
            result.refusal = RemoteProtocolError(refusal.reason)

    def _start_tls(self, header: v3.Header, result: ServeResult) -> _Refusal | None:
        if not self._gate.tls:
            return _Refusal(Code.BAD_REQUEST, "TLS is not spoken here")
        if self._is_encrypted or self._awaits_tls or self._has_begun:
            raise RemoteProtocolError("START_TLS is not the first request")
        result.add_response(responses.encode_response(responses.StartTlsResponse(header.request_id, Code.OK)))
        self._awaits_tls = True
        return None

    def _auth_v3(self, header: v3.Header, plugin_name: str, payload: bytes, result: ServeResult) -> None:
        if self._is_early(_Early(plugin_name, header), payload):
            return
        step = self._auth(plugin_name, payload)
        if isinstance(step, _Refusal):
            self._refuse_v3(header, v3.Operation.AUTH, step, result)
            return
        plugin, token = self._plugin.encode(), step.token or b""
        result.add_response(
            responses.encode_response(responses.AuthResponse(header.request_id, Code.OK, plugin, token))
        )
        if self.wires is not None:
            result.next_wire = self.wires.v3

    def _serve_v2(self, body: memoryview, result: ServeResult) -> None:
        request = v2.decode_request(body) if len(body) >= LENGTH_BYTES and self._is_auth_v2(body) else None
        if not isinstance(request, v2.AuthFrame):
            raise RemoteProtocolError("a request came before the peer is known")
        self._auth_v2(request.version, *decode_message(request.message), result)

    def _auth_v2(self, version: int, plugin: str, payload: bytes, result: ServeResult) -> None:
        if self._is_early(_Early(plugin, None, version), payload):
            return
        step = self._auth(plugin, payload)
        if isinstance(step, _Refusal):
            result.refusal = RemoteProtocolError(step.reason)
            return
        message = encode_message(self._plugin, step.token or b"")
        result.add_response(v2.AuthFrame(message, version).encode())
        if self.wires is not None:
            result.next_wire = self.wires.v2

    @staticmethod
    def _is_auth_v2(body: memoryview) -> bool:
        return (body[1] if body[0] else body[3]) == v2.Op.AUTH

    def _is_early(self, early: _Early, payload: bytes) -> bool:
        """Keep an original client's first AUTH that came before all is encrypted: it shows nothing yet."""
        if self._may_show_itself or payload or self._early is not None:
            return False
        self._early = early
        return True

    def _auth(self, plugin: str, payload: bytes) -> Step | _Refusal:
        """Take a token; the peer is known once ``wires`` is set."""
        if not self._may_show_itself:
            return _Refusal(Code.UNAUTHORIZED, "AUTH came before all is encrypted", ends=True)
        self._has_begun = True
        if self._exchange is None:
            self._exchange, self._plugin = self._gate.exchange(plugin), plugin
        if self._exchange is None and self._may_be_anonymous:
            self._plugin = DISABLED
            self._admit(ANONYMOUS)
            return Step(b"")
        if self._exchange is None or plugin != self._plugin:
            return self._failed("AUTH is for a plugin that is not taken here", ends=False)
        step = self._exchange.step(payload)
        if step.failure:
            return self._failed(step.failure)
        if step.done:
            identity = self._gate.user(plugin, step, self._peer)
            if identity is None:
                return self._failed("this user is not let in by this plugin")
            self._secret = step.secret
            self._admit(identity)
        return step

    def _failed(self, reason: str, *, ends: bool = True) -> _Refusal:
        self._gate.refuse(self._peer, reason)
        return _Refusal(Code.UNAUTHORIZED, reason, ends)
