"""A session of ZooKeeper says who it is: first of all after each connect, on kazoo's thread, before any request.

kazoo speaks SASL through a library of its own (``pure-sasl``), takes a connection that breaks in between for a refusal,
and then never connects again; and it reads no file. So its step of the connect is ours (ADR 0041)::

    connect → SASL tokens, requests of type 102, until both sides know the secret → AUTH of scheme digest → requests

A login that is refused is tried again, by the next secret of the file, which is read at each connect.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import EXCEPTIONS, ConnectionDropped
from kazoo.protocol.serialization import SASL as Token

from tallystick.bookkeeper.metadata.zk_identity import DIGEST, SASL, ZkIdentity
from tallystick.bookkeeper.wire.digest_md5 import ZOOKEEPER, DigestClient
from tallystick.errors import UsageError

MOST_TOKENS = 4
PAUSE_S = 1.0  # before a login that was refused is tried again


class ZkLogin:
    """The logins of one kazoo client; ``passed``, and ``failed`` after all secrets, are called on its thread."""

    def __init__(
        self, identity: ZkIdentity, client: Any, passed: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        self._identity, self._client, self._passed, self._failed = identity, client, passed, failed
        self._failures, self._stopped = 0, threading.Event()
        self._secrets: tuple[str, ...] = ()
        connection = client._connection
        connection.sasl_options = {}  # anything: it asks for the step
        connection._authenticate_with_sasl = lambda _host, timeout_s: self._log_in(connection, timeout_s)

    def read(self) -> None:
        """Read the secrets. Raises UsageError."""
        self._secrets = self._identity.secrets()

    def stop(self) -> None:
        """Wait for nothing any more."""
        self._stopped.set()

    def _log_in(self, connection: Any, timeout_s: float) -> None:
        """Say who the session is. Raises ConnectionDropped, upon which kazoo connects again."""
        reason = self._attempt(connection, timeout_s)
        if reason is None:
            self._passed()
            return
        self._failures += 1
        if self._failures % len(self._secrets) == 0:
            self._failed(reason)
            self._stopped.wait(PAUSE_S)
        raise ConnectionDropped(reason)

    def _attempt(self, connection: Any, timeout_s: float) -> str | None:
        """Returns why the login failed, None if it did not."""
        with contextlib.suppress(UsageError):  # what was read before counts: the file is being written
            self.read()
        if DIGEST in self._identity.schemes:  # kazoo sends them behind this step
            user = self._identity.user
            self._client.auth_data = {(DIGEST, f"{user}:{secret}") for secret in self._secrets}
        return self._sasl(connection, timeout_s) if SASL in self._identity.schemes else None

    def _sasl(self, connection: Any, timeout_s: float) -> str | None:
        secret = self._secrets[self._failures % len(self._secrets)]
        exchange, token = DigestClient(self._identity.user, secret, secrets.token_urlsafe(24), ZOOKEEPER), b""
        for number in range(1, MOST_TOKENS + 1):
            step = exchange.step(token)
            if step.failure or step.done:
                return step.failure or None
            connection._submit(Token(step.token or b""), timeout_s, number)
            header, buffer, offset = connection._read_header(timeout_s)
            if header.err:
                error = EXCEPTIONS[header.err].__name__
                return (
                    f"ZooKeeper does not let this user in ({error}): are zkUser and zkPasswordFile those of the "
                    "server's JAAS file?"
                )
            token = Token.deserialize(buffer, offset)[0] or b""
            if not token:
                return (
                    "ZooKeeper's server knows no users: its JAAS file needs a section Server (or zkAuthSchemes=digest)"
                )
        return "ZooKeeper's server asks for more tokens than a login has"
