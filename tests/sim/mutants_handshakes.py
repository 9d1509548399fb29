"""Planted bugs in how clients and servers show each other who they are (N3, N5, N10), and in signed requests (N13)."""

from __future__ import annotations

from sim.mutants import BOOKIE, LEDGER, Mutant

WIRE = "bookkeeper/wire/"
ROCKETMQ = "rocketmq/"


def _planted(name: str, module: str, old: str, new: str, promise: str) -> Mutant:
    return Mutant(name, module, old, new, killer="sim handshakes", schedules=60, promise=promise)


HANDSHAKE_MUTANTS = (
    _planted(
        "a request before AUTH is served",
        BOOKIE + "handshake.py",
        "return not self._gate.must_authenticate and self._may_show_itself",
        "return self._may_show_itself",
        "A1",
    ),
    _planted(
        "a secret that is another one lets in, too",
        WIRE + "digest_md5.py",
        "            return hmac.compare_digest(expected_proof.encode(), proof)\n",
        "            return len(expected_proof) == len(proof)\n",
        "A1",
    ),
    _planted(
        "who was let in by a secret that ended stays",
        BOOKIE + "handshakes.py",
        'if identity.kind == "user" and secret not in self._secrets(identity.name):',
        'if identity.kind == "user" and not secret:',
        "A1",
    ),
    _planted(
        "a name alone signs at a name server",
        ROCKETMQ + "nameserver/access.py",
        "if user is None or place is None:",
        "if user is None:",
        "A1",
    ),
    _planted(
        "a bookie goes on by a mechanism that it does not list",
        BOOKIE + "handshakes.py",
        "if plugin == CERTIFICATE or plugin not in self._settings.mechanisms:",
        "if plugin not in (DIGEST_MD5, *self._settings.mechanisms):",
        "A1",
    ),
    _planted(
        "a bookie takes whatever nonce the client says",
        WIRE + "digest_md5.py",
        '        expected = {"nonce": self._nonce, ',
        '        self._nonce = given.get("nonce", "")\n        expected = {',
        "A2",
    ),
    _planted(
        "a signed request counts as often as it comes",
        ROCKETMQ + "remoting/replays.py",
        "        if not bit or self._seen & bit:\n",
        "        if not bit:\n",
        "A2",
    ),
    _planted(
        "a broker does not look whether a request came before",
        ROCKETMQ + "broker/access/gate.py",
        "if ONCE in fields and (why",
        "if not fields and (why",
        "A2",
    ),
    _planted(
        "a signed request counts with another code, too",
        ROCKETMQ + "remoting/replays.py",
        "if int(match[4]) != code:",
        "if not match[4]:",
        "A1",
    ),
    _planted(
        "of two secrets the newest alone lets in",
        BOOKIE + "handshakes.py",
        "return tuple(users.get(user, ()))",
        "return tuple(users.get(user, ()))[:1]",
        "A3",
    ),
    _planted(
        "a bookie has one nonce",
        BOOKIE + "handshakes.py",
        "nonce = secrets.token_urlsafe(24)",
        'nonce = "0123456789abcdef" * 2',
        "A4",
    ),
    _planted(
        "a client has one nonce",
        LEDGER + "handshake.py",
        "secrets.token_urlsafe(24)",
        '"0123456789abcdef"',
        "A4",
    ),
    _planted(
        "connections number their signed requests as one",
        ROCKETMQ + "remoting/client.py",
        "Numbered(self._random.getrandbits(64))",
        "Numbered(7)",
        "A4",
    ),
    _planted(
        "the log of a refusal has the secret",
        WIRE + "scram.py",
        'return Step(failure="the secret is not this user\'s")',
        'return Step(failure=f"the secret is not this user\'s: {self._secrets(self._user)}")',
        "A5",
    ),
    _planted(
        "a client shows itself by the weakest",
        LEDGER + "handshake.py",
        "next((name for name in own if name in offered), None)",
        "next((name for name in own[::-1] if name in offered), None)",
        "A6",
    ),
    _planted(
        "a client that is refused falls back",
        LEDGER + "handshake.py",
        "return () if common == CERTIFICATE else (common,)",
        "return () if common == CERTIFICATE else (common, *(name for name in own if name != common))",
        "A6",
    ),
    _planted(
        "a client believes a bookie that asks nobody",
        LEDGER + "handshake.py",
        "        if security.auth_required:\n            reason",
        "        if not security.auth_required:\n            reason",
        "A6",
    ),
    _planted(
        "a client does not look whether the bookie knows the secret (SCRAM)",
        WIRE + "scram.py",
        "if match is None or not hmac.compare_digest(match[1].encode(), self._signature.encode()):",
        "if match is None:",
        "A6",
    ),
    _planted(
        "a client does not look whether the bookie knows the secret (DIGEST-MD5)",
        WIRE + "digest_md5.py",
        'if not hmac.compare_digest(given.get("rspauth", "").encode(), proof.encode()):',
        'if "rspauth" not in given:',
        "A6",
    ),
)
