"""SASL's DIGEST-MD5 as the original's plugin "sasl" has it: service, realm and host are all ``bookkeeper``. A client of
ZooKeeper speaks it as well, with a service and a host of that.

::

    client  (empty)                                                      it has nothing to say first
    bookie  realm, nonce, charset, algorithm=md5-sess, qop="auth"        challenge
    client  username, realm, nonce, cnonce, nc, digest-uri, response     it knows the secret
    bookie  rspauth                                                      so does the bookie

Only qop ``auth`` is spoken, nothing is protected after the exchange: TLS does that.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tallystick.bookkeeper.wire.auth import Secrets, Step
from tallystick.codec.secret_places import place_of_secret

MAX_TOKEN_BYTES = 4096
_NC = "00000001"  # a nonce is used once
_DIRECTIVE = re.compile(rb'\s*([a-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]+))\s*(?:,|\Z)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """What is asked for; its host is the realm of its users, too."""

    service: str
    host: str

    @property
    def uri(self) -> str:
        return f"{self.service}/{self.host}"


BOOKKEEPER = Place("bookkeeper", "bookkeeper")
ZOOKEEPER = Place("zookeeper", "zk-sasl-md5")  # so written into the original's server and client


class DigestServer:
    """The bookie's side; ``nonce`` is new for each."""

    def __init__(self, secrets: Secrets, nonce: str) -> None:
        self._secrets, self._nonce, self._challenged = secrets, nonce, False

    def step(self, token: bytes) -> Step:
        """Take a token of the client."""
        if not self._challenged:
            self._challenged = True
            if token:
                return Step(failure="the first token is not empty")
            return Step(
                f'realm="{BOOKKEEPER.host}",nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode(
                    "ascii"
                )
            )
        given = _directives(token)
        if given is None:
            return Step(failure="a token is not of DIGEST-MD5's form")
        user = given.get("username", "")
        expected = {"nonce": self._nonce, "nc": _NC, "digest-uri": BOOKKEEPER.uri, "realm": BOOKKEEPER.host}
        if any(given.get(name) != value for name, value in expected.items()) or given.get("qop", "auth") != "auth":
            return Step(failure="a token is for another bookie, realm or nonce")
        if given.get("authzid", user) != user or not given.get("cnonce"):
            return Step(failure="a token is for another user than its own")
        cnonce, authzid, proof = given["cnonce"], given.get("authzid"), given.get("response", "").encode()

        def fits(secret: str) -> bool:
            expected_proof = _response(BOOKKEEPER, user, secret, self._nonce, cnonce, authzid, "AUTHENTICATE")
            return hmac.compare_digest(expected_proof.encode(), proof)

        secrets = self._secrets(user)
        place = place_of_secret(secrets, fits)
        if place is None:
            return Step(failure="the secret is not this user's")
        answer = _response(BOOKKEEPER, user, secrets[place], self._nonce, cnonce, authzid, "")
        return Step(f"rspauth={answer}".encode(), done=True, user=user, secret=secrets[place], place=place)


class DigestClient:
    """The client's side; ``cnonce`` is new for each."""

    def __init__(self, user: str, secret: str, cnonce: str, place: Place = BOOKKEEPER) -> None:
        self._user, self._secret, self._cnonce, self._place = user, secret, cnonce, place
        self._nonce: str | None = None
        self._began = False

    def step(self, token: bytes) -> Step:
        """Take a token of the bookie, or of ZooKeeper's server."""
        if not self._began:
            self._began = True
            return Step(b"")
        given = _directives(token)
        if given is None:
            return Step(failure="a token of the server is not of DIGEST-MD5's form")
        if self._nonce is None:
            return self._answer(given)
        proof = _response(self._place, self._user, self._secret, self._nonce, self._cnonce, None, "")
        if not hmac.compare_digest(given.get("rspauth", "").encode(), proof.encode()):
            return Step(failure="the server did not show that it knows the secret")
        return Step(done=True)

    def _answer(self, given: Mapping[str, str]) -> Step:
        nonce, offered = given.get("nonce", ""), given.get("qop", "auth").replace(" ", "").split(",")
        if not nonce or given.get("algorithm") != "md5-sess" or "auth" not in offered:
            return Step(failure="the server's challenge is of no kind that this client speaks")
        if given.get("realm", self._place.host) != self._place.host:
            return Step(failure="the server's challenge is for another realm")
        self._nonce = nonce
        proof = _response(self._place, self._user, self._secret, nonce, self._cnonce, None, "AUTHENTICATE")
        quoted = {"username": self._user, "realm": self._place.host, "nonce": nonce, "cnonce": self._cnonce}
        quoted["digest-uri"] = self._place.uri
        directives = [f'{name}="{_escaped(value)}"' for name, value in quoted.items()]
        directives += ["charset=utf-8", f"nc={_NC}", "qop=auth", "maxbuf=65536", f"response={proof}"]
        return Step(",".join(directives).encode())


def _response(place: Place, user: str, secret: str, nonce: str, cnonce: str, authzid: str | None, method: str) -> str:
    """Return RFC 2831's response-value: the client's with the method AUTHENTICATE, the bookie's with none."""
    who = _md5(b":".join((_bytes(user), place.host.encode(), _bytes(secret))))
    first = b":".join((who, nonce.encode(), cnonce.encode(), *((authzid.encode(),) if authzid is not None else ())))
    second = f"{method}:{place.uri}".encode()
    last = ":".join((_md5(first).hex(), nonce, _NC, cnonce, "auth", _md5(second).hex()))
    return _md5(last.encode()).hex()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _bytes(text: str) -> bytes:
    """Return what is hashed: Latin-1 where that has all the characters, as RFC 2831 says."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _directives(token: bytes) -> Mapping[str, str] | None:
    """Return the directives of a token by name; None if it is too long, has another form, or names one twice."""
    if len(token) > MAX_TOKEN_BYTES:
        return None
    given: dict[str, str] = {}
    position = 0
    while position < len(token):
        match = _DIRECTIVE.match(token, position)
        if match is None:
            return None
        name, quoted, plain = match.groups()
        value = plain if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)
        if name.decode() in given:
            return None
        try:
            given[name.decode()] = value.decode()
        except UnicodeDecodeError:
            return None
        position = match.end()
    return MappingProxyType(given)
