"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as a plugin of ours, stronger than DIGEST-MD5; the original has none of it.

::

    client  n,,n=user,r=nonce
    bookie  r=nonce+its own,s=salt,i=rounds
    client  c=biws,r=both nonces,p=proof        it knows the secret
    bookie  v=signature                         so does the bookie

A user that does not exist gets a salt as any other, and is refused in the same time (``prepare``), so that nobody
learns who does.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from tallystick.bookkeeper.wire.auth import Secrets, Step
from tallystick.codec.secret_places import NO_SECRET, place_of_secret

ROUNDS = 8192  # of the salted secret: some milliseconds, once a secret on either side
MAX_ROUNDS = 100_000  # that a client does for a bookie: some ten milliseconds
MOST_PREPARED = 512  # secrets whose keys are made at once: a second
MAX_TOKEN_BYTES = 4096
_FIRST = re.compile(r"n,,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]{8,256}))")
_SERVER_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]{8,512}),s=([A-Za-z0-9+/=]{8,256}),i=([1-9][0-9]{3,6})")
_FINAL = re.compile(r"(c=biws,r=([\x21-\x2b\x2d-\x7e]{8,512})),p=([A-Za-z0-9+/=]{44})")
_SERVER_FINAL = re.compile(r"v=([A-Za-z0-9+/=]{44})")

SaltOf = Callable[[str], bytes]


class ScramServer:
    """The bookie's side; ``nonce`` is new for each, ``salt_of`` gives the same salt for the same name."""

    def __init__(self, secrets: Secrets, nonce: str, salt_of: SaltOf) -> None:
        self._secrets, self._nonce, self._salt_of = secrets, nonce, salt_of
        self._user, self._salt, self._sent = "", b"", ""

    def step(self, token: bytes) -> Step:
        """Take a token of the client."""
        text = _text(token)
        if not self._sent:
            return self._first(text)
        match = _FINAL.fullmatch(text)
        if match is None or match[2] != self._nonce:
            return Step(failure="a token is not of SCRAM's form, or for another nonce")
        signed, proof = f"{self._sent},{match[1]}".encode(), _decoded(match[3])

        def fits(secret: str) -> bool:
            return hmac.compare_digest(_proof(_server_keys(secret, self._salt)[0], signed), proof)

        secrets = self._secrets(self._user)
        place = place_of_secret(secrets, fits)
        if place is None:
            return Step(failure="the secret is not this user's")
        signature = b64encode(_hmac(_server_keys(secrets[place], self._salt)[1], signed)).decode()
        return Step(f"v={signature}".encode(), done=True, user=self._user, secret=secrets[place], place=place)

    def _first(self, text: str) -> Step:
        match = _FIRST.fullmatch(text)
        user = _user_of(match[2]) if match else None
        if match is None or user is None:
            return Step(failure="the first token is not of SCRAM's form")
        self._user, self._salt, self._nonce = user, self._salt_of(user), match[3] + self._nonce
        answer = f"r={self._nonce},s={b64encode(self._salt).decode()},i={ROUNDS}"
        self._sent = f"{match[1]},{answer}"
        return Step(answer.encode())


class ScramClient:
    """The client's side; ``nonce`` is new for each."""

    def __init__(self, user: str, secret: str, nonce: str) -> None:
        self._user, self._secret, self._nonce = user, secret, nonce
        self._first, self._signature = "", ""

    def step(self, token: bytes) -> Step:
        """Take a token of the bookie."""
        text = _text(token)
        if not self._first:
            name = self._user.replace("=", "=3D").replace(",", "=2C")
            self._first = f"n={name},r={self._nonce}"
            return Step(f"n,,{self._first}".encode())
        if not self._signature:
            return self._answer(text)
        match = _SERVER_FINAL.fullmatch(text)
        if match is None or not hmac.compare_digest(match[1].encode(), self._signature.encode()):
            return Step(failure="the bookie did not show that it knows the secret")
        return Step(done=True)

    def _answer(self, text: str) -> Step:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            return Step(failure="a token of the bookie is not of SCRAM's form, or for another nonce")
        if int(match[3]) > MAX_ROUNDS:
            return Step(failure="the bookie asks for more rounds than this client does")
        key, server_key = _keys(self._secret, _decoded(match[2]), int(match[3]))
        final = f"c=biws,r={match[1]}"
        signed = f"{self._first},{text},{final}".encode()
        self._signature = b64encode(_hmac(server_key, signed)).decode()
        return Step(f"{final},p={b64encode(_proof(key, signed)).decode()}".encode())


def prepare(users: Mapping[str, Sequence[str]], salt_of: SaltOf) -> None:
    """Make the keys of users, some milliseconds each, before they come: else the time of a refusal would say that there
    is such a user, who has not come yet."""
    _server_keys(NO_SECRET, b"")
    places = [(secret, user) for user, secrets in users.items() for secret in secrets]
    for secret, user in places[:MOST_PREPARED]:
        _server_keys(secret, salt_of(user))


def _server_keys(secret: str, salt: bytes) -> tuple[bytes, bytes]:
    """Return the keys as ``_keys`` does: of no secret with one salt, or strangers would make us work for each name."""
    return _keys(secret, b"" if secret is NO_SECRET else salt, ROUNDS)


@lru_cache(maxsize=2 * MOST_PREPARED)
def _keys(secret: str, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    """Return the keys of the client and of the bookie."""
    salted = hashlib.pbkdf2_hmac("sha256", secret.encode(), salt, rounds)
    return _hmac(salted, b"Client Key"), _hmac(salted, b"Server Key")


def _proof(key: bytes, signed: bytes) -> bytes:
    signature = _hmac(hashlib.sha256(key).digest(), signed)
    return bytes(one ^ other for one, other in zip(key, signature, strict=True))


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _decoded(text: str) -> bytes:
    """Return no bytes for what is not Base64: nothing equals them."""
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _text(token: bytes) -> str:
    """Return "" for what is too long or no text: it fits no form."""
    try:
        return token.decode() if len(token) <= MAX_TOKEN_BYTES else ""
    except UnicodeDecodeError:
        return ""


def _user_of(name: str) -> str | None:
    """Return the user of a name as it is sent, None for another spelling than RFC 5802's."""
    if re.search("=(?!2C|3D)", name):
        return None
    return name.replace("=2C", ",").replace("=3D", "=")
