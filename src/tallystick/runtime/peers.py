"""Who is at the other end of a connection, and what of it may be one machine."""

from __future__ import annotations

import asyncio
import ipaddress
from functools import lru_cache

_MAPPED = "::ffff:"  # in front of an IPv4 address, where a port takes IPv6 as well


def peer_of(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """Returns host and port; None if nobody knows any more. A host with an IPv4 address is called by that alone."""
    peername = transport.get_extra_info("peername")
    if not peername:
        return None
    host = str(peername[0])
    if host.startswith(_MAPPED) and "." in host:
        host = host[len(_MAPPED) :]
    return host, peername[1]


@lru_cache(maxsize=4096)
def network_of(host: str) -> str:
    """Returns the /64 of an IPv6 address, of which one machine may have every address; of all else the host itself."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((int(ipaddress.IPv6Address(host.partition("%")[0])), 64), strict=False))
    except ValueError:
        return host
