"""Logins at ZooKeeper over a connection that is none: which secret is shown, and what counts as let in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.serialization import write_buffer

from support.certificates import secret_file
from tallystick.bookkeeper.metadata import zk_login
from tallystick.bookkeeper.metadata.zk_identity import ZkIdentity
from tallystick.bookkeeper.metadata.zk_login import ZkLogin
from tallystick.bookkeeper.wire import digest_md5
from tallystick.bookkeeper.wire.digest_md5 import ZOOKEEPER

CHALLENGE = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'


class _Server:
    """The connection of kazoo, with a server behind it that takes one secret. ``refuses_at``: the number of a token
    that it refuses, whatever it is."""

    def __init__(self, secret: str, refuses_at: int | None = None) -> None:
        self.secret, self.refuses_at = secret, refuses_at
        self.sasl_options: Any = None
        self._authenticate_with_sasl: Any = None
        self._token, self._number = b"", 0

    def _submit(self, request: Any, timeout_s: float, number: int) -> None:
        self._token, self._number = request.challenge, number

    def _read_header(self, timeout_s: float) -> tuple[Any, bytes, int]:
        answer = CHALLENGE
        if self._token:
            given = digest_md5._directives(self._token)
            assert given is not None
            proofs = [
                digest_md5._response(ZOOKEEPER, "bk", self.secret, "n", given["cnonce"], None, method)
                for method in ("AUTHENTICATE", "")
            ]
            if given["response"] != proofs[0]:
                return SimpleNamespace(err=AuthFailedError.code), b"", 0
            answer = b"rspauth=" + proofs[1].encode()
        refuses = self._number == self.refuses_at
        return SimpleNamespace(err=AuthFailedError.code if refuses else 0), write_buffer(answer), 0


class _Logins:
    def __init__(self, server: _Server, file: str) -> None:
        self._server, self.heard = server, list[str]()
        client = SimpleNamespace(_connection=server)
        self.login = ZkLogin(ZkIdentity("bk", file), client, lambda: self.heard.append("passed"), self.heard.append)
        self.login.read()

    def connect(self) -> bool:
        try:
            self._server._authenticate_with_sasl("zk", 1.0)
        except ConnectionDropped:
            return False
        return True


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zk_login, "PAUSE_S", 0.0)


def test_each_secret_of_the_file_is_tried_before_it_is_told(tmp_path: Path) -> None:
    logins = _Logins(_Server("old"), secret_file(tmp_path / "zk", "new\nold\n"))
    assert not logins.connect() and logins.heard == []
    assert logins.connect() and logins.heard == ["passed"]
    refused = _Logins(_Server("another"), secret_file(tmp_path / "zk", "new\nold\n"))
    assert not refused.connect() and refused.heard == []
    assert not refused.connect()
    [reason] = refused.heard
    assert "AuthFailed" in reason and "new" not in reason.split() and "old" not in reason.split()


def test_a_changed_file_counts_at_the_next_connect_and_a_damaged_one_does_not(tmp_path: Path) -> None:
    server = _Server("first")
    logins = _Logins(server, secret_file(tmp_path / "zk", "first"))
    secret_file(tmp_path / "zk", "one\ntwo\nthree\n")
    assert logins.connect()
    secret_file(tmp_path / "zk", "second")
    server.secret = "second"
    assert logins.connect()


@pytest.mark.rule("N2")
@pytest.mark.parametrize("number", [1, 2])
def test_n2_a_refusal_of_any_token_is_one(tmp_path: Path, number: int) -> None:
    logins = _Logins(_Server("secret", refuses_at=number), secret_file(tmp_path / "zk", "secret"))
    assert not logins.connect()
    [reason] = logins.heard
    assert "AuthFailed" in reason
