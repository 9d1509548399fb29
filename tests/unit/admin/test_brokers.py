"""What an operator asks brokers."""

from __future__ import annotations

from typing import cast

import pytest

from tallystick.admin.brokers import Operator
from tallystick.errors import BrokerError, RequestTimeout
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode


class FakeRemoting:
    """Brokers by address: silent ones, and those that answer with a code."""

    def __init__(self, **codes: int | None) -> None:
        self.codes, self.asked = codes, list[str]()

    async def ask(self, address: str, command: Command, within_s: float) -> Command:
        self.asked.append(address)
        code = self.codes[address]
        if code is None:
            raise RequestTimeout("no answer in time", address=address)
        return command.response(code)


def operator(remoting: FakeRemoting) -> Operator:
    return Operator(cast("RemotingClient", remoting), ["n:1"])


async def test_a_slave_answers_for_a_master_that_hangs_which_is_waited_for_once() -> None:
    remoting = FakeRemoting(master=None, slave=0)
    asking = operator(remoting)
    for _ in range(3):
        assert (await asking.ask_any(["master", "slave"], RequestCode.GET_CONSUME_STATS)).code == 0
    assert remoting.asked == ["master", "slave", "slave", "slave"]


async def test_where_none_answers_the_masters_silence_is_told_and_a_refusal_at_once() -> None:
    with pytest.raises(RequestTimeout, match="address=master"):
        await operator(FakeRemoting(master=None, slave=None)).ask_any(
            ["master", "slave"], RequestCode.GET_CONSUME_STATS
        )
    remoting = FakeRemoting(master=ResponseCode.NO_PERMISSION, slave=0)
    with pytest.raises(BrokerError):
        await operator(remoting).ask_any(["master", "slave"], RequestCode.GET_CONSUME_STATS)
    assert remoting.asked == ["master"]
