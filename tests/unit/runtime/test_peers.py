from __future__ import annotations

import asyncio

import pytest

from tallystick.runtime.peers import network_of, peer_of


class Transport(asyncio.BaseTransport):
    pass


@pytest.mark.parametrize(
    ("peername", "peer"),
    [
        (None, None),
        (("10.1.2.3", 7), ("10.1.2.3", 7)),
        (("::1", 7, 0, 0), ("::1", 7)),
        (("::ffff:10.1.2.3", 7, 0, 0), ("10.1.2.3", 7)),
        (("fe80::1%eth0", 7, 0, 2), ("fe80::1%eth0", 7)),
    ],
)
def test_an_ipv4_host_is_called_by_its_address_on_a_port_of_both_kinds(
    peername: tuple[str, int] | None, peer: tuple[str, int] | None
) -> None:
    assert peer_of(Transport({"peername": peername})) == peer


def test_addresses_of_one_64_are_one_network_and_all_else_is_its_own() -> None:
    assert network_of("2001:db8:0:7::1") == network_of("2001:db8:0:7:ffff:1:2:3") != network_of("2001:db8:0:8::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2%eth0")
    for host in ("10.1.2.3", "unknown", "a:b", "host.example"):
        assert network_of(host) == host
