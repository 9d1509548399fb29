"""What the plugins of AUTH have in common: the message on the wire, and the steps of an exchange.

::

    AuthMessage { plugin name, payload }     a token of the plugin each way, until one side has what it wanted

An exchange is a core: a token comes, and a ``Step`` says what is sent for it and how far the exchange is. Nonces and
secrets are arguments. A failure never says whether the user, the secret or the form was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.message import DecodeError

from tallystick.bookkeeper.wire import requests_pb2 as pb
from tallystick.errors import RemoteProtocolError

DISABLED = "AuthDisabledPlugin"  # what a bookie without authentication says for any plugin
DIGEST_MD5 = "sasl"  # the original's plugin of this name speaks SASL's DIGEST-MD5 (or Kerberos, which ours does not)
SCRAM_SHA_256 = "scram-sha-256"
CERTIFICATE = "certificate"  # no plugin: the certificate of TLS says who it is
STRONGEST_FIRST = (CERTIFICATE, SCRAM_SHA_256, DIGEST_MD5)

# The secrets that a user may have now, the newest first; none for who is no user.
Secrets = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Step:
    """What an exchange makes of a token: ``failure`` (for the log alone) ends it, and so does ``done``.

    ``user`` is known with ``done`` on the bookie's side, and the ``secret`` that was used with its place, 0 the newest.
    """

    token: bytes | None = field(default=None, repr=False)  # to send; None: nothing
    done: bool = False
    user: str = ""
    secret: str = field(default="", repr=False)
    place: int = 0
    failure: str = ""


class Exchange(Protocol):
    """One side of one exchange: ``step`` for each token of the other side, until it is done or has failed."""

    def step(self, token: bytes) -> Step:
        """Take the other side's next token. The client's first one is made of none: b""."""
        ...


def encode_message(plugin: str, payload: bytes) -> bytes:
    """Return an AuthMessage, as a frame of version 2 carries it."""
    return pb.Auth(plugin=plugin.encode(), payload=payload).SerializeToString()


def decode_message(data: bytes) -> tuple[str, bytes]:
    """Return plugin and payload of an AuthMessage. Raises RemoteProtocolError."""
    message = pb.Auth()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise RemoteProtocolError("an AUTH has no message of a plugin", bytes=len(data)) from error
    if not message.IsInitialized():
        raise RemoteProtocolError("an AUTH lacks a required field", bytes=len(data))
    return message.plugin.decode(errors="replace"), message.payload
