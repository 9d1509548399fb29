"""Settings of TLS with the original's keys (``TlsSystemConfig``), for servers and for what they connect to.

With a certificate a server is ``enforcing``: who does not begin with TLS is closed. ``permissive``, the original's
default, must be written. There are no test certificates: without files there is no TLS.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from tallystick.errors import UsageError
from tallystick.runtime import keyfile
from tallystick.runtime.certificates import TlsContexts, TlsFiles, client_context, server_context
from tallystick.runtime.outside import Outside
from tallystick.runtime.schema import Key, Part
from tallystick.runtime.tls_network import Door, TlsNetwork


class TlsMode(enum.Enum):
    """Which connections a server takes."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True)
class TlsSettings:
    """Paths of PEM files; one line a setting, the original's key in brackets. Raises UsageError."""

    mode: TlsMode | None = None  # none: enforcing if there is a certificate (tls.server.mode)
    certificate: str | None = None  # (tls.server.certPath)
    key: str | None = None  # (tls.server.keyPath)
    key_password_file: str | None = None  # ours; the original has the password itself (tls.server.keyPassword)
    trust: str | None = None  # authorities of clients (tls.server.trustCertPath)
    requires_client: bool = False  # clients must show a certificate (tls.server.need.client.auth=require)
    dials: bool = False  # what this process connects to is asked by TLS (tls.enable)
    dial_trust: str | None = None  # authorities of servers (tls.client.trustCertPath)
    dial_certificate: str | None = None  # what this process shows them (tls.client.certPath)
    dial_key: str | None = None  # (tls.client.keyPath)
    dial_key_password_file: str | None = None

    def __post_init__(self) -> None:
        if self.mode in (TlsMode.PERMISSIVE, TlsMode.ENFORCING) and self.certificate is None:
            raise UsageError("mode needs tls.server.certPath and tls.server.keyPath: there are no test certificates")
        if self.requires_client and self.trust is None:
            raise UsageError("requires_client needs tls.server.trustCertPath: which authorities clients may have")
        if self.dials and self.dial_trust is None:
            raise UsageError("dials needs tls.client.trustCertPath: else whoever answered would be believed")
        _ = self.files, self.dial_files

    @property
    def listens(self) -> bool:
        """Whether the server takes TLS."""
        return self.certificate is not None and self.mode is not TlsMode.DISABLED

    @property
    def takes_plain(self) -> bool:
        """Whether it takes connections without TLS."""
        return not self.listens or self.mode is TlsMode.PERMISSIVE

    @property
    def files(self) -> TlsFiles:
        return TlsFiles(self.trust, self.certificate, self.key, self.key_password_file)

    @property
    def dial_files(self) -> TlsFiles:
        return TlsFiles(self.dial_trust, self.dial_certificate, self.dial_key, self.dial_key_password_file)


def _mode(key: str, value: str) -> TlsMode:
    try:
        return TlsMode(value.lower())
    except ValueError:
        raise UsageError(f"{key} is disabled, permissive or enforcing", value=value) from None


def _need(key: str, value: str) -> bool:
    if value.lower() not in ("none", "optional", "require"):
        raise UsageError(f"{key} is none, optional or require", value=value)
    return value.lower() == "require"


KEYS = Part(
    TlsSettings,
    {
        "tls.server.mode": Key("mode", _mode),
        "tls.server.certPath": Key("certificate", keyfile.text),
        "tls.server.keyPath": Key("key", keyfile.text),
        "tls.server.keyPasswordFile": Key("key_password_file", keyfile.text),  # ours
        "tls.server.trustCertPath": Key("trust", keyfile.text),
        "tls.server.need.client.auth": Key("requires_client", _need, lambda value: "require" if value else "none"),
        "tls.enable": Key("dials", keyfile.flag),
        "tls.client.trustCertPath": Key("dial_trust", keyfile.text),
        "tls.client.certPath": Key("dial_certificate", keyfile.text),
        "tls.client.keyPath": Key("dial_key", keyfile.text),
        "tls.client.keyPasswordFile": Key("dial_key_password_file", keyfile.text),  # ours
    },
)


def with_tls(outside: Outside, settings: TlsSettings) -> Outside:
    """Returns what a server works with, its network with TLS where the settings say so. Raises UsageError for files
    that cannot be used."""
    if not settings.listens and not settings.dials:
        return outside
    door = dial = None
    if settings.listens:
        takes_plain = settings.takes_plain
        door = Door(_contexts(outside, settings.files, settings.requires_client), lambda host: takes_plain)
    if settings.dials:
        dial = _contexts(outside, settings.dial_files, None)
    return replace(outside, network=TlsNetwork(outside.network, outside.events, door=door, dial=dial))


def for_slaves(outside: Outside, plain_from: Callable[[str], bool], *, dials: bool) -> Outside:
    """Returns what replication works with: see ``TlsNetwork.changed``."""
    if not isinstance(outside.network, TlsNetwork):
        return outside
    return replace(outside, network=outside.network.changed(plain_from, dials=dials))


def _contexts(outside: Outside, files: TlsFiles, requires_peer: bool | None) -> TlsContexts:
    """``requires_peer`` is None for a client."""

    def failed(reason: str) -> None:
        outside.events.emit("certificates refused", files=", ".join(files.paths), reason=reason)

    if requires_peer is None:
        return TlsContexts(files, client_context, outside.clock, failed)
    needed = requires_peer
    return TlsContexts(files, lambda some: server_context(some, require_peer=needed), outside.clock, failed)
