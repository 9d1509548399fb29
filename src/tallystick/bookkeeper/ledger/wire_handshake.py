"""The bytes of what a client says to a bookie before its first request: START_TLS and AUTH, in version 3.

A connection that speaks version 2 afterwards begins so as well: a bookie finds out with every connection what it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import RemoteProtocolError


@dataclass(frozen=True, slots=True)
class AuthAnswer:
    """What a bookie says to an AUTH: its code, and for OK the plugin and a token of it."""

    code: Code
    plugin: str = ""
    payload: bytes = b""


def start_tls(number: int) -> bytes:
    """Return the frame of a START_TLS."""
    return v3.encode_request(v3.StartTlsRequest(v3.Header(number)))


def auth(number: int, plugin: str, payload: bytes) -> bytes:
    """Return the frame of an AUTH."""
    return v3.encode_request(v3.AuthRequest(v3.Header(number), plugin.encode(), payload))


def tls_answer(number: int, body: bytes) -> Code:
    """Return the code of the answer to a START_TLS. Raises RemoteProtocolError for another answer."""
    response = responses.decode_response(body)
    if isinstance(response, responses.StartTlsResponse) and response.request_id == number:
        return response.code
    return _refusal(number, response, v3.Operation.START_TLS)


def auth_answer(number: int, body: bytes) -> AuthAnswer | None:
    """Return the answer to an AUTH; None for what is passed over, once. Raises RemoteProtocolError for another."""
    response = responses.decode_response(body)
    if isinstance(response, responses.RefusedResponse) and response.operation is v3.Operation.START_TLS:
        return None  # an original says so of each TLS handshake that was not preceded by authentication
    if isinstance(response, responses.AuthResponse) and response.request_id == number:
        return AuthAnswer(response.code, response.plugin.decode(errors="replace"), response.payload)
    return AuthAnswer(_refusal(number, response, v3.Operation.AUTH))


def _refusal(number: int, response: responses.Response, operation: v3.Operation) -> Code:
    if not isinstance(response, responses.RefusedResponse) or response.request_id != number:
        raise RemoteProtocolError("an answer that nobody asked for came before the first request")
    if response.operation is not operation:
        raise RemoteProtocolError("an answer is to another operation than was asked", operation=response.operation.name)
    return response.code
