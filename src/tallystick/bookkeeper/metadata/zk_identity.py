"""Who a session of ZooKeeper is, and to whom it gives the nodes that it makes.

::

    sasl:bookkeeper                                 a user of the server's JAAS file, by DIGEST-MD5: the id
                                                    lives through a new password
    digest:bookkeeper:base64(SHA-1(user:secret))    any name and secret: a new secret is a new id

A file may have two secrets, a line each, the newest first: a session is then both ids of ``digest``, and logs in by the
one that the server takes. So is one that shows both schemes. With ``zkEnableSecurity`` a node that it makes belongs to
all ids of the session (the original's CREATOR_ALL), else to everybody.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.runtime.certificates import secret_text

SASL, DIGEST = "sasl", "digest"
SCHEMES = (SASL, DIGEST)
MOST_SECRETS = 2
WHAT_TO_DO = (
    "the node belongs to another identity than this program shows: say who it is behind the ? of the metadata URI, "
    "zkUser=NAME&zkPasswordFile=PATH, or see `tally cluster zk-acl --show`"
)


@dataclass(frozen=True)
class ZkIdentity:
    """A user, and the file with its secrets. Raises UsageError for what shows nothing."""

    user: str
    password_file: str
    schemes: tuple[str, ...] = (SASL,)

    def __post_init__(self) -> None:
        strange = [name for name in self.schemes if name not in SCHEMES]
        if strange or not self.schemes:
            kerberos = "; Kerberos is not spoken here" if {"gssapi", "kerberos"} & set(strange) else ""
            raise UsageError(f"zkAuthSchemes has {', '.join(SCHEMES)}{kerberos}", given=",".join(strange))
        if not self.user or ":" in self.user or any(sign in self.user for sign in "/@") or not self.user.isprintable():
            raise UsageError("zkUser is a name without : / @ and control characters")
        if not self.password_file.startswith("/"):
            raise UsageError("zkPasswordFile is an absolute path: programs start in folders of their own")

    def secrets(self) -> tuple[str, ...]:
        """Read the file: the newest secret first. Raises UsageError, which names the file."""
        lines = [line.strip() for line in secret_text(self.password_file).splitlines()]
        secrets = tuple(dict.fromkeys(line for line in lines if line))
        if not 0 < len(secrets) <= MOST_SECRETS:
            raise UsageError("zkPasswordFile has one secret, or two in two lines", path=self.password_file)
        return secrets

    def ids(self, secrets: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Returns scheme and id of all that a session with these secrets is."""
        ids = [(SASL, self.user)] if SASL in self.schemes else []
        if DIGEST in self.schemes:
            ids += [(DIGEST, digest_id(self.user, secret)) for secret in secrets]
        return tuple(ids)


def digest_id(user: str, secret: str) -> str:
    """Returns the id that ZooKeeper's scheme ``digest`` gives a user with a secret."""
    digest = hashlib.sha1(f"{user}:{secret}".encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(digest).decode()}"
