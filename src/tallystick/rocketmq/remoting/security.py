"""How a client shows brokers and name servers who it is, and learns who they are: keys and TLS, from files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tallystick.errors import UsageError
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.signature import Credentials
from tallystick.runtime.certificates import TlsContexts, TlsFiles, WatchedFiles, client_context, secret_text
from tallystick.runtime.clock import Clock
from tallystick.runtime.keyfile import parse_properties
from tallystick.runtime.outside import Outside
from tallystick.runtime.tls_network import TlsNetwork

CREDENTIALS, CA, CERTIFICATE, KEY = (
    "TALLY_BROKER_CREDENTIALS", "TALLY_BROKER_TLS_CA", "TALLY_BROKER_TLS_CERT", "TALLY_BROKER_TLS_KEY"
)  # fmt: skip


@dataclass(frozen=True)
class BrokerSecurity:
    """Keys and TLS of a client of topics; without any it is anonymous. Files are read again when they change.

    ``credentials_file`` has ``accessKey=`` and ``secretKey=`` lines, as the original's tools.yml; it must not
    be open to everybody. Or ``access_key`` and ``secret_key`` are given. ``tls_ca_file``: the authorities of the
    servers, which makes the client speak TLS and nothing else; ``tls_cert_file`` and ``tls_key_file``: what it shows
    them. Raises UsageError.
    """

    credentials_file: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise UsageError("access_key and secret_key are given together")
        if self.credentials_file is not None and self.access_key is not None:
            raise UsageError("credentials_file is given, or access_key and secret_key, not both")
        if self.tls_ca_file is None and self.tls_cert_file is not None:
            raise UsageError("tls_cert_file needs tls_ca_file: else whoever answered would be believed")
        _ = self._files

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> BrokerSecurity:
        """Returns what variables of the environment say. Raises UsageError."""
        return cls(
            credentials_file=environment.get(CREDENTIALS) or None,
            tls_ca_file=environment.get(CA) or None,
            tls_cert_file=environment.get(CERTIFICATE) or None,
            tls_key_file=environment.get(KEY) or None,
        )

    def credentials(self, clock: Clock) -> Callable[[], Credentials | None]:
        """Returns who signs the next request. Raises UsageError for a file that cannot be read; one that was changed so
        leaves it as it was."""
        if self.credentials_file is not None:
            return _CredentialsFile(self.credentials_file, clock).current
        given = None
        if self.access_key is not None and self.secret_key is not None:
            given = Credentials(self.access_key, self.secret_key)
        return lambda: given

    def around(self, outside: Outside) -> Outside:
        """Returns what a client works with, its network with TLS if there is an authority. Raises UsageError."""
        if self.tls_ca_file is None:
            return outside

        def failed(reason: str) -> None:
            outside.events.emit("certificates refused", files=", ".join(self._files.paths), reason=reason)

        dial = TlsContexts(self._files, client_context, outside.clock, failed)
        return replace(outside, network=TlsNetwork(outside.network, outside.events, door=None, dial=dial))

    @property
    def _files(self) -> TlsFiles:
        return TlsFiles(self.tls_ca_file, self.tls_cert_file, self.tls_key_file)


def open_client(outside: Outside, security: BrokerSecurity | None) -> RemotingClient:
    """Returns a client of requests that signs and speaks TLS as ``security`` says; None: as the environment does.
    Raises UsageError."""
    secure = BrokerSecurity.of(os.environ) if security is None else security
    return RemotingClient(secure.around(outside), RemotingSettings(), credentials=secure.credentials(outside.clock))


class _CredentialsFile:
    def __init__(self, path: str, clock: Clock) -> None:
        self._path, self._watched = path, WatchedFiles((path,), clock)
        self._watched.note()
        self._credentials = read_credentials(path)

    def current(self) -> Credentials:
        if self._watched.changed():
            with contextlib.suppress(UsageError):  # half written, or no good: a refusal will show it
                self._credentials = read_credentials(self._path)
        return self._credentials


def read_credentials(path: str) -> Credentials:
    """Read a file of ``accessKey`` and ``secretKey``. Raises UsageError, which shows nothing of its content."""
    content = secret_text(path)
    try:
        keys = parse_properties(content)
    except UsageError as error:
        raise UsageError("a line of the credentials is not key=value", path=path) from error
    values = {name: value.strip("\"'") for name, value in keys.items()}
    access_key, secret_key = values.get("accessKey"), values.get("secretKey")
    if not access_key or not secret_key:
        raise UsageError("the file of credentials has no accessKey, or no secretKey", path=path)
    return Credentials(access_key, secret_key, values.get("securityToken"))
