"""Requests to name servers. They do not talk to each other, and any will do: the one that responded last is asked
first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.errors import TallyError, Unavailable, UsageError
from tallystick.rocketmq.remoting.client import RemotingClient, addresses_in, parse_address
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.arguments import items, text


def addresses_of(name_servers: str | Sequence[str]) -> list[str]:
    """Returns ``host:port`` of each, from a list or from a text separated by ``;`` or ``,``. Raises UsageError."""
    if isinstance(name_servers, str):
        addresses = list(addresses_in(text(name_servers, "a name server's address")))
    else:
        texts = items(name_servers, "name_servers", "text or a list")
        addresses = [address.strip() for address in texts if text(address, "a name server's address").strip()]
        for address in addresses:
            parse_address(address)
    if not addresses:
        raise UsageError("a client needs the address of a name server")
    return addresses


class NameServers:
    """The name servers at ``addresses``, of which there is at least one."""

    def __init__(self, remoting: RemotingClient, addresses: Sequence[str], timeout_s: float) -> None:
        self._remoting, self._addresses, self._timeout_s = remoting, list(addresses), timeout_s

    async def ask(self, code: int, fields: Mapping[str, str]) -> Command:
        """Returns the response of the first name server that gives one, whatever its code.

        Raises Unavailable if none does, UsageError if what responded last was no name server: a broker, most likely.
        """
        failure: TallyError | None = None
        for address in tuple(self._addresses):
            try:
                response = await self._remoting.ask(address, request(code, dict(fields)), self._timeout_s)
                if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return response
                failure = UsageError(
                    f"{address} answers and is no name server (a broker?): give host and port of a name server"
                )
            except Unavailable as error:
                failure = error
            self._addresses.remove(address)
            self._addresses.append(address)
        assert failure is not None, "there is at least one name server"
        if isinstance(failure, UsageError):
            raise failure
        raise Unavailable(
            "no name server answers: is it running, and are host and port right?",
            name_servers=";".join(self._addresses),
            reason=failure.message,  # of the last one: TLS on one side alone, say
        ) from failure
