"""The users of a bookie and their secrets, in a file of ours that nobody else may read.

::

    [users]
    bookkeeper = "a secret"
    "bookkeeper-broker" = ["the new secret", "the old one"]     # both are taken while they are changed

It is read again when it has changed. Secrets are in no log, error or ``repr``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tallystick.codec.secret_places import MOST_SECRETS
from tallystick.errors import UsageError

MOST_CHARACTERS = 1024  # of a name or a secret
SALT_BYTES = 16

Users = Mapping[str, Sequence[str]]
NOBODY: Users = MappingProxyType({})


def parse_users(text: str, path: str) -> Users:
    """Read the text of a file. Raises UsageError, which names ``path`` and no secret."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # whose text may quote a secret
        raise UsageError("the users are not TOML", path=path) from None
    table = document.pop("users", None)
    if document or not isinstance(table, dict):
        raise UsageError("the file of users has one table, [users]", path=path)
    users = {}
    for user, given in table.items():
        several = [given] if isinstance(given, str) else given
        if not isinstance(several, list) or not 1 <= len(several) <= MOST_SECRETS:
            raise UsageError("a user has a secret, or a list of two: the new one and the old one", path=path, user=user)
        for text_ in (user, *several):
            if not isinstance(text_, str) or not text_ or len(text_) > MOST_CHARACTERS or not text_.isprintable():
                raise UsageError("names and secrets of users are printable text, and not empty", path=path, user=user)
        users[user] = tuple(several)
    return MappingProxyType(users)


class Salts:
    """The salt of each name, the same while a process lives: also of a name that is no user's."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, user: str) -> bytes:
        """Return the salt of a name."""
        return hmac.digest(self._key, user.encode(), hashlib.sha256)[:SALT_BYTES]
