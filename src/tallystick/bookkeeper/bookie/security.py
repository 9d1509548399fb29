"""Settings of who may connect to a bookie, and how; docs/security.md shows them at work."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallystick.bookkeeper.wire.auth import CERTIFICATE, DIGEST_MD5, SCRAM_SHA_256, STRONGEST_FIRST
from tallystick.errors import UsageError
from tallystick.runtime.certificates import TlsFiles

ORIGINAL_IDS = ".*bookkeeper.*"


@dataclass(frozen=True)
class SecuritySettings:
    """One line a setting; units in the names. Raises UsageError for values that cannot work, or protect nothing."""

    tls: bool = False  # START_TLS is taken
    tls_required: bool = True  # and nothing else before it
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_key_password: str | None = None  # a file with it
    tls_trust: str | None = None  # the authorities of clients' certificates
    tls_ask_certificate: bool = False  # a client without one does not come in
    tls_look_s: float = 1.0  # changed files are noticed after so long
    mechanisms: tuple[str, ...] = ()  # how a client may show who it is; none: it need not
    allow_anonymous: bool = False  # it need not in any case, and is counted
    users_file: str | None = None
    permissions_file: str | None = None
    sasl_ids: str = ORIGINAL_IDS  # the users that DIGEST-MD5 lets in

    def __post_init__(self) -> None:
        unknown = [name for name in self.mechanisms if name not in STRONGEST_FIRST]
        if unknown:
            reason = "Kerberos is not spoken here" if set(unknown) & {"gssapi", "kerberos"} else "no such mechanism"
            raise UsageError(f"authMechanisms has {', '.join(STRONGEST_FIRST)}: {reason}", given=", ".join(unknown))
        if {DIGEST_MD5, SCRAM_SHA_256} & set(self.mechanisms) and self.users_file is None:
            raise UsageError("usersFile is missing: authentication without users would let nobody in")
        if CERTIFICATE in self.mechanisms and not (self.tls and self.tls_trust):
            raise UsageError("authentication by certificate needs TLS, and tlsTrustStore")
        if self.permissions_file is not None and not self.mechanisms:
            raise UsageError("permissionsFile without authMechanisms would be about nobody")
        if self.users_file is not None and not self.mechanisms:
            raise UsageError("usersFile without authMechanisms would be about nobody")
        if self.tls_look_s <= 0:
            raise UsageError("tlsCertFilesRefreshDurationSeconds must be above 0", value=self.tls_look_s)
        if not self.tls and any((self.tls_certificate, self.tls_key, self.tls_trust, self.tls_ask_certificate)):
            raise UsageError("tlsProviderFactoryClass is missing: the other keys of TLS would protect nothing")
        if self.tls and (self.tls_certificate is None or self.tls_key is None):
            raise UsageError("TLS needs tlsCertificatePath and tlsKeyStore")
        try:
            re.compile(self.sasl_ids)
        except re.error as error:
            raise UsageError(f"saslJaasClientAllowedIds is no pattern: {error}", value=self.sasl_ids) from error

    @property
    def files(self) -> TlsFiles:
        """The files of TLS."""
        return TlsFiles(self.tls_trust, self.tls_certificate, self.tls_key, self.tls_key_password)

    @property
    def asks(self) -> bool:
        """Whether a connection begins with anything but requests."""
        return self.tls or bool(self.mechanisms)

    @property
    def authenticates(self) -> bool:
        """Whether everybody must show who it is."""
        return bool(self.mechanisms) and not self.allow_anonymous
