"""How a client shows who it is, and makes sure who a bookie is: settings, from a file or by hand.

::

    [security]                                      # the file that TALLY_SECURITY names, or ClientSecurity.load(path)
    tlsTrustStore = "/etc/tally/authorities.pem"    # TLS with every bookie, or there is no connection
    tlsCertificatePath = "/etc/tally/me.pem"        # for bookies that ask for a certificate
    tlsKeyStore = "/etc/tally/me.key"
    user = "bookkeeper"
    passwordFile = "/etc/tally/password"
    authMechanisms = "scram-sha-256,sasl"           # the strongest that a bookie takes, and never another
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.uri import client_options
from tallystick.bookkeeper.wire.auth import CERTIFICATE, DIGEST_MD5, SCRAM_SHA_256, STRONGEST_FIRST
from tallystick.errors import UsageError
from tallystick.runtime import keyfile
from tallystick.runtime.certificates import TlsFiles
from tallystick.runtime.schema import Key, Part, unknown

ENVIRONMENT = "TALLY_SECURITY"
TABLE = "security"


@dataclass(frozen=True)
class ClientSecurity:
    """One line a setting: paths of files, and no secret. Raises UsageError for values that protect nothing."""

    tls_trust: str | None = None  # authorities of bookies' certificates; with them all is encrypted, or nothing is sent
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_key_password: str | None = None  # a file with it
    user: str | None = None
    password_file: str | None = None  # its first line
    mechanisms: tuple[str, ...] = STRONGEST_FIRST
    auth_required: bool = True  # a bookie that asks nobody who he is gets no request

    def __post_init__(self) -> None:
        unknown_names = [name for name in self.mechanisms if name not in STRONGEST_FIRST]
        if unknown_names or not self.mechanisms:
            kerberos = "; Kerberos is not spoken here" if {"gssapi", "kerberos"} & set(unknown_names) else ""
            raise UsageError(
                f"authMechanisms has {', '.join(STRONGEST_FIRST)}{kerberos}", given=",".join(unknown_names)
            )
        if (self.user is None) != (self.password_file is None):
            raise UsageError("user and passwordFile are given together")
        if self.tls_trust is None and any((self.tls_certificate, self.tls_key, self.tls_key_password)):
            raise UsageError("tlsTrustStore is missing: without it nothing is encrypted")
        if self.tls_trust is None and self.user is None:
            raise UsageError("neither tlsTrustStore nor user is given: nothing would be protected")

    @property
    def files(self) -> TlsFiles | None:
        """The files of TLS; None without it."""
        if self.tls_trust is None:
            return None
        return TlsFiles(self.tls_trust, self.tls_certificate, self.tls_key, self.tls_key_password)

    @property
    def own(self) -> tuple[str, ...]:
        """By what this client can show who it is, the strongest first."""
        able = {CERTIFICATE: self.tls_certificate is not None}
        able |= {DIGEST_MD5: self.user is not None, SCRAM_SHA_256: self.user is not None}
        return tuple(name for name in STRONGEST_FIRST if name in self.mechanisms and able[name])

    @classmethod
    def load(cls, path: str) -> ClientSecurity:
        """Read a file: the table [security], or the keys alone. Raises UsageError, which names a key."""
        texts = keyfile.without_empty(keyfile.read_keys(path, TABLE))
        strange = unknown(texts, KEYS.keys)
        if strange:  # what is not known protects nothing
            raise UsageError(f"the file of security has keys that nobody knows: {', '.join(strange)}", path=path)
        return KEYS.build(texts)

    @classmethod
    def of_uri(cls, uri: str) -> ClientSecurity | None:
        """Read what stands behind the ``?`` of a metadata URI; None if nothing does. Raises UsageError."""
        return cls.of_options(client_options(uri))

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> ClientSecurity | None:
        """Read the options of a metadata URI; None if there are none. Raises UsageError."""
        if "security" not in options:
            return KEYS.build(options) if options else None
        if len(options) > 1:
            raise UsageError("the option security of a metadata URI names a file with all keys: give it alone")
        return cls.load(options["security"])

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> ClientSecurity | None:
        """Read the file that ``TALLY_SECURITY`` names; None if it names none. Raises UsageError."""
        path = environment.get(ENVIRONMENT)
        return cls.load(path) if path else None


def _mechanisms(key: str, value: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in value.split(",") if name.strip())


KEYS = Part(
    ClientSecurity,
    {
        "tlsTrustStore": Key("tls_trust", keyfile.text),
        "tlsCertificatePath": Key("tls_certificate", keyfile.text),
        "tlsKeyStore": Key("tls_key", keyfile.text),
        "tlsKeyStorePasswordPath": Key("tls_key_password", keyfile.text),
        "user": Key("user", keyfile.text),
        "passwordFile": Key("password_file", keyfile.text),
        "authMechanisms": Key("mechanisms", _mechanisms, ",".join),
        "authRequired": Key("auth_required", keyfile.flag),
    },
)
