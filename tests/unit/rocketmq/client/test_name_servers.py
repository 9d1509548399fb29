"""Any name server will do; the one that answered last is asked first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from tallystick.errors import Unavailable, UsageError
from tallystick.rocketmq.client.name_servers import NameServers, addresses_of
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire.remoting import Command


class FakeRemoting:
    def __init__(self, dead: set[str]) -> None:
        self.dead, self.asked = dead, list[str]()

    async def ask(self, address: str, command: Command, within_s: float) -> Command:
        self.asked.append(address)
        if address in self.dead:
            raise Unavailable("refused", address=address)
        return command.response(0)


async def test_a_dead_one_is_passed_over_and_asked_last_from_then_on() -> None:
    remoting = FakeRemoting({"a:1"})
    servers = NameServers(cast("RemotingClient", remoting), ["a:1", "b:1"], 1.0)
    fields: Mapping[str, Any] = {"topic": "T"}
    assert (await servers.ask(105, fields)).code == 0
    assert (await servers.ask(105, fields)).code == 0
    assert remoting.asked == ["a:1", "b:1", "b:1"]
    remoting.dead.add("b:1")
    with pytest.raises(Unavailable, match="no name server answers") as raised:
        await servers.ask(105, fields)
    assert raised.value.fields == {"name_servers": "b:1;a:1", "reason": "refused"}
    assert remoting.asked[3:] == ["b:1", "a:1"]


def test_addresses_come_as_a_list_or_as_one_text() -> None:
    assert addresses_of("a:1; b:2;") == addresses_of("a:1,b:2") == addresses_of(["a:1", " b:2"]) == ["a:1", "b:2"]
    for wrong in ("", ";", "a", "a:x", ["a:1,b:2"], ["a:1;b:2"], "http://a:1", "a b:1"):
        with pytest.raises(UsageError):
            addresses_of(wrong)
