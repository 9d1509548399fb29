"""The secrets of one life, in files of this machine, as production reads them."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from math import inf

from tallystick.rocketmq.wire.signature import Credentials
from tallystick.sim.handshakes_plan import KeyedClientPlan

LOOK_S = 1.0  # after which a server has read a file that changed
LATE_S = 2 * LOOK_S + 0.5  # after which nothing is served any more that an old secret let in


@dataclass
class KeyHolder:
    """A client of bookies. ``valid_until``: from then on its secret counts no more."""

    plan: KeyedClientPlan
    user: str
    password_file: str
    valid_until: float


class Keyring:
    """``register`` each client, then ``write`` the users; ``renew``, ``switch`` and ``end_old`` are a rotation."""

    def __init__(self, folder: str, rng: random.Random) -> None:
        self._folder, self._random = folder, rng
        self._users: dict[str, list[str]] = {}
        self._holders: list[KeyHolder] = []
        self.secrets: list[str] = []  # all that there are
        self.users_file = os.path.join(folder, "users.toml")
        self.names_file = os.path.join(folder, "names.toml")
        self.broker = Credentials("broker", self._secret())
        self.sender = Credentials("sender", self._secret())
        self.liar = Credentials("sender", self._secret())  # not that user's
        broker, sender = json.dumps(self.broker.secret_key), json.dumps(self.sender.secret_key)
        self._replace(self.names_file, f"[brokers]\nbroker = {broker}\n[clients]\nsender = {sender}\n")

    def _secret(self) -> str:
        self.secrets.append(f"secret-{self._random.getrandbits(64):016x}")
        return self.secrets[-1]

    def register(self, number: int, plan: KeyedClientPlan) -> KeyHolder:
        """Return what a client shows itself by."""
        user, secret = f"bookkeeper-{number}", self._secret()
        if plan.kind in ("right", "late"):
            self._users[user] = [secret]
        elif plan.kind == "wrong":
            self._users[user] = [self._secret()]
        valid_until = inf if user in self._users and plan.kind != "wrong" else -inf
        holder = KeyHolder(plan, user, os.path.join(self._folder, f"password-{number}"), valid_until)
        self._replace(holder.password_file, secret + "\n")
        self._holders.append(holder)
        return holder

    def write(self) -> None:
        """Write the file of users."""
        lines = [f"{user} = {json.dumps(secrets)}" for user, secrets in self._users.items()]
        self._replace(self.users_file, "\n".join(["[users]", *lines, ""]))

    def renew(self) -> None:
        """Give users a new secret beside the old one."""
        for holder in self._holders:
            if holder.valid_until == inf:
                self._users[holder.user].insert(0, self._secret())
        self.write()

    def switch(self) -> None:
        """Let clients use the new secret, but those that keep the old one."""
        for holder in self._holders:
            if holder.plan.kind == "right" and not holder.plan.keeps:
                self._replace(holder.password_file, self._users[holder.user][0] + "\n")

    def end_old(self, now: float) -> None:
        """End the old secrets, but those that stay."""
        for holder in self._holders:
            if holder.valid_until == inf and not (holder.plan.kind == "right" and holder.plan.keeps):
                del self._users[holder.user][1:]
                if holder.plan.kind == "late":
                    holder.valid_until = now
        self.write()

    def _replace(self, path: str, text: str) -> None:
        with open(new := path + ".new", "w", opener=_private) as file:
            file.write(text)
        os.rename(new, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
