"""The signature of a request: which user sends it, and that nobody changed it (``AclClientRPCHook``, ``AclSigner``).

::

    AccessKey    extField: the user's name
    Signature    extField: base64(HMAC-SHA1(secret, values of all other extFields in the order of their names | body))

The signature covers neither the code nor the time of a request: who can read what is sent can send it again. TLS
prevents that, and between ours a field that the signature covers, too (``remoting/replays.py``).
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.codec.secret_places import place_of_secret
from tallystick.rocketmq.wire.remoting import Command

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
ONCE = "tallyOnce"  # ours
_OF_SIGNER = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, ONCE))
_UNSIGNED_KEY = "_UNIQUE_KEY_QUERY"  # clients up to 4.9.3 add it behind the signature
_LAST_WITH_UNSIGNED_KEY = 399  # the version number of 4.9.3


@dataclass(frozen=True)
class Credentials:
    """Who signs, and with which secret: only the name is shown."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def sign(command: Command, credentials: Credentials, once: str | None = None) -> None:
    """Add the fields that say who sends a request. Call it when all other fields and the body are in it. ``once``: what
    makes this request another one than any before."""
    fields = dict(command.fields)
    fields.pop(SIGNATURE, None)
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    if once is not None:
        fields[ONCE] = once
    command.ext = fields
    fields[SIGNATURE] = signature_of(signed_content(command), credentials.secret_key)


def unsigned_fields(command: Command) -> dict[str, str]:
    """Returns the fields of a request without who signed it: what somebody else may be shown."""
    return {name: value for name, value in command.fields.items() if name not in _OF_SIGNER}


def signed_content(command: Command) -> bytes:
    """Returns what the signature of a request is made of. Raises RemoteProtocolError for fields that are none."""
    fields = command.fields
    is_old = command.version <= _LAST_WITH_UNSIGNED_KEY
    values = [fields[name] for name in sorted(fields) if name != SIGNATURE and not (is_old and name == _UNSIGNED_KEY)]
    return b"".join(("".join(values).encode("utf-8", "replace"), command.body, *command.parts))


def place_of_signer(secrets: Sequence[str], content: bytes, signature: str) -> int | None:
    """Returns the place of the secret by which some content was signed, None if none of them: see
    ``place_of_secret``."""
    given = signature.encode("utf-8", "replace")
    return place_of_secret(secrets, lambda secret: hmac.compare_digest(signature_of(content, secret).encode(), given))


def signature_of(content: bytes, secret: str) -> str:
    """Returns the signature of some content."""
    return base64.b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()
