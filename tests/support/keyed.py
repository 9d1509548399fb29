"""Bookies that ask who somebody is, and the files with which their peers show it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.bookies import Peer, adds
from support.certificates import Authority, Certified, secret_file
from support.v3_frames import request_v3
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.ledger.security import ClientSecurity
from tallystick.bookkeeper.wire import v3, v3_responses
from tallystick.bookkeeper.wire.auth import Exchange
from tallystick.bookkeeper.wire.codes import Code

USER, SECRET, OLD_SECRET = "bookkeeper", "the new secret", "the old secret"
START_TLS = request_v3(v3.StartTlsRequest)


@dataclass(frozen=True)
class KeyFiles:
    """The files of one cluster."""

    folder: Path
    authority: Authority
    bookie: Certified
    client: Certified

    @classmethod
    def make(cls, folder: Path) -> KeyFiles:
        """Make an authority, and certificates of a bookie and of a client named "client"."""
        authority = Authority.make(folder)
        return cls(folder, authority, authority.certify("bookie"), authority.certify("client"))

    def users(self, name: str = "users.toml", **users: Sequence[str]) -> str:
        """Write a file of users, and return its path; without any it is that of USER with both secrets."""
        lines = {user: list(secrets) for user, secrets in (users or {USER: (SECRET, OLD_SECRET)}).items()}
        text = "".join(f"{user} = {secrets!r}\n" for user, secrets in lines.items())
        return secret_file(self.folder / name, f"[users]\n{text}")

    def bookie_settings(self, **changes: Any) -> SecuritySettings:
        """TLS alone, unless ``changes`` say more."""
        tls: dict[str, Any] = {
            "tls": True,
            "tls_certificate": self.bookie.certificate,
            "tls_key": self.bookie.key,
            "tls_trust": self.authority.trust,
            "tls_look_s": 0.001,
        }
        return SecuritySettings(**{**tls, **changes})

    def client_settings(self, secret: str = SECRET, **changes: Any) -> ClientSecurity:
        """TLS, and USER with a secret."""
        password = secret_file(self.folder / f"password-{secret.replace(' ', '-')}", f"{secret}\n")
        own: dict[str, Any] = {"tls_trust": self.authority.trust, "user": USER, "password_file": password}
        return ClientSecurity(**{**own, **changes})

    def context(self, *, certified: bool = False) -> ssl.SSLContext:
        """Return the context of a client by hand."""
        context = ssl.create_default_context(cafile=self.authority.trust)
        if certified:
            context.load_cert_chain(self.client.certificate, self.client.key)
        return context


async def encrypted(bookie: Bookie, context: ssl.SSLContext) -> Peer:
    """Connect, ask for TLS and encrypt: the standard library's own, by hand."""
    peer = Peer(*await asyncio.open_connection(*bookie.address))
    answer = await ask_v3(peer, START_TLS)
    assert isinstance(answer, v3_responses.StartTlsResponse) and answer.code == Code.OK
    await peer.writer.start_tls(context, server_hostname="127.0.0.1")
    return peer


async def ask_v3(peer: Peer, request: bytes) -> v3_responses.Response | None:
    """Return the response; None if the connection was closed instead."""
    frame = await peer.ask(request)
    return None if frame is None else v3_responses.decode_response(frame[4:])


async def show(peer: Peer, plugin: str, client: Exchange, *, number: int = 1) -> Code | None:
    """Go through an exchange. Returns OK, or the code of the refusal; None if the connection was closed."""
    token = b""
    while True:
        step = client.step(token)
        assert not step.failure, step.failure
        if step.done:
            return Code.OK
        request = request_v3(v3.AuthRequest, plugin.encode(), step.token, number=number)
        answer = await ask_v3(peer, request)
        if not isinstance(answer, v3_responses.AuthResponse):
            return None if answer is None else answer.code
        token = answer.payload


def passwords(keys: KeyFiles, **changes: object) -> SecuritySettings:
    """Authentication without TLS."""
    return SecuritySettings(**{"users_file": keys.users(), "mechanisms": ("sasl", "scram-sha-256"), **changes})  # type: ignore[arg-type]


async def one_add(peer: Peer, ledger: int = 1) -> Code:
    """Add an entry by version 2."""
    return await peer.code(adds(ledger, [0]))
