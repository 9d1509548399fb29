"""The users of a broker with their secrets and policies: who a request comes from, and whether he may send it.

A user has one secret, or two while they are being changed. Numbers and lengths are bounded, as the table is in memory
and a slave copies all of it. A change is one step on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from tallystick.codec.secret_places import MOST_SECRETS
from tallystick.errors import UsageError
from tallystick.rocketmq.broker.access.rules import MAX_NAME_CHARS, Need, Policies, read_policies
from tallystick.rocketmq.wire.access import StoredUser, UserTable
from tallystick.rocketmq.wire.signature import place_of_signer

MAX_USERS = 10_000
MAX_ENTRIES = 50_000  # of all users
MAX_SECRET_CHARS = 1024
_MOST_DECISIONS = 10_000  # that are remembered

TYPES = {"super": "Super", "normal": "Normal"}
STATUSES = {"enable": "enable", "disable": "disable"}


@dataclass(frozen=True)
class User:
    """One user. ``is_super``: he may do everything. ``secrets``: the newest one first."""

    name: str
    secrets: tuple[str, ...] = field(repr=False)
    is_super: bool = False
    is_enabled: bool = True
    policies: Policies = field(default_factory=Policies, repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > MAX_NAME_CHARS:
            raise UsageError(f"username can not be blank, and has at most {MAX_NAME_CHARS} characters")
        if not 1 <= len(self.secrets) <= MOST_SECRETS:
            raise UsageError(f"a user has one password, or {MOST_SECRETS}", username=self.name)
        if not all(secret.strip() and len(secret) <= MAX_SECRET_CHARS for secret in self.secrets):
            raise UsageError(f"password can not be blank, and has at most {MAX_SECRET_CHARS} characters")

    @property
    def type_name(self) -> str:
        return TYPES["super" if self.is_super else "normal"]

    @property
    def status_name(self) -> str:
        return STATUSES["enable" if self.is_enabled else "disable"]

    def stored(self) -> StoredUser:
        """Returns what the file has."""
        return StoredUser(
            username=self.name,
            passwords=self.secrets,
            user_type=self.type_name,
            user_status=self.status_name,
            policies=self.policies.infos(),
        )


class AccessTable:
    """All users. ``changed`` is called after each change, ``revoked`` after one by which somebody may do less."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.changed = changed
        self.revoked: Callable[[], None] = lambda: None
        self.changes = 0
        self.replacements = 0  # how often all of it was replaced
        self.removals = 0  # users that went
        self._users: dict[str, User] = {}
        self._entry_count = 0
        self._decisions: dict[tuple[str, Need, str], bool] = {}

    @property
    def users(self) -> Mapping[str, User]:
        """The users by name, as they are now; later changes show in it."""
        return self._users

    def authenticate(self, name: str, content: bytes, signature: str) -> tuple[User, bool] | None:
        """Returns the user who signed, and whether with the older one of two secrets; None, whatever is wrong. It takes
        as long for names that nobody has."""
        user = self._users.get(name)
        place = place_of_signer(user.secrets if user is not None else (), content, signature)
        return (user, place > 0) if user is not None and place is not None and user.is_enabled else None

    def allows(self, user: User, need: Need, host: str) -> bool:
        """Whether the user may do this from there."""
        if user.is_super:
            return True
        key = user.name, need, host
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions.clear()
            decision = self._decisions[key] = user.policies.allows(need, host)
        return decision

    def put(self, user: User) -> None:
        """Make or change a user. Raises UsageError for one too many."""
        old = self._users.get(user.name)
        count = self._entry_count + len(user.policies) - (len(old.policies) if old is not None else 0)
        if old is None and len(self._users) >= MAX_USERS:
            raise UsageError(f"a broker has at most {MAX_USERS} users")
        if count > MAX_ENTRIES:
            raise UsageError(f"all users have at most {MAX_ENTRIES} entries together")
        self._users[user.name], self._entry_count = user, count
        self._step(revokes=old is not None)

    def remove(self, name: str) -> None:
        """Take a user away, with his policies. To take away one who is gone is a change as well: who asks again is told
        so when the disk has it."""
        user = self._users.pop(name, None)
        if user is not None:
            self._entry_count -= len(user.policies)
            self.removals += 1
        self._step(revokes=user is not None)

    def replace(self, users: Mapping[str, User]) -> bool:
        """Put these users in the place of all others. Returns False, and does nothing, if they are the same. Raises
        UsageError for too many."""
        if users == self._users:
            return False
        count = sum(len(user.policies) for user in users.values())
        if len(users) > MAX_USERS or count > MAX_ENTRIES:
            raise UsageError(f"a broker has at most {MAX_USERS} users with {MAX_ENTRIES} entries")
        self._users, self._entry_count = dict(users), count
        self.replacements += 1
        self._step(revokes=True)
        return True

    def text(self) -> Iterator[bytes]:
        """Yields the file piece by piece, a line a user."""
        yield b'{"users":{'
        for number, user in enumerate(list(self._users.values())):
            name, stored = msgspec.json.encode(user.name), msgspec.json.encode(user.stored())
            yield (b",\n" if number else b"\n") + name + b":" + stored
        yield b"\n}}\n"

    def _step(self, *, revokes: bool) -> None:
        self._decisions.clear()
        self.changes += 1
        self.changed()
        if revokes:
            self.revoked()


def read_users(stored_users: Iterable[StoredUser]) -> dict[str, User]:
    """Read users as files have them. Raises UsageError for what is unknown or too much: nobody is let in by a slip of
    the pen, and nobody is forgotten."""
    users: dict[str, User] = {}
    for stored in stored_users:
        user_type, status = TYPES.get(stored.user_type.lower()), STATUSES.get(stored.user_status.lower())
        if user_type is None or status is None:
            raise UsageError("userType is Super or Normal, userStatus enable or disable", username=stored.username)
        policies = read_policies(stored.policies) if stored.policies else Policies()
        users[stored.username] = User(
            stored.username, stored.passwords, user_type == "Super", status == "enable", policies
        )
    return users


def read_table(table: UserTable) -> dict[str, User]:
    """Read the users of a file. Raises UsageError."""
    if any(name != user.username for name, user in table.users.items()):
        raise UsageError("a user stands under another name than his own")
    return read_users(table.users.values())


def with_policies(user: User, policies: Policies) -> User:
    """Returns the user with these policies alone."""
    return replace(user, policies=policies)
