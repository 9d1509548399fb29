"""Who may follow a master whose broker asks for keys or certificates: it would be given the whole log.

The identity of a slave is its client certificate. A slave without TLS, such as an original's, is let in by its address
alone, if that is written out; one on the master's machine always.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence

from tallystick.errors import UsageError
from tallystick.runtime.certificates import common_name
from tallystick.runtime.network import is_loopback
from tallystick.runtime.tls import TlsConnection

Addresses = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


def read_addresses(key: str, value: str) -> Addresses:
    """Read addresses and networks, separated by ``;`` or ``,``. Raises UsageError."""
    try:
        texts = value.replace(",", ";").split(";")
        return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in texts if text.strip())
    except ValueError:
        raise UsageError(f"{key} has IP addresses and networks, separated by ; or ,", value=value) from None


def is_among(host: str, addresses: Addresses) -> bool:
    """Whether a host's address is one of these, or in one of these networks."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any((mapped or address) in network for network in addresses)


def entry_refusal(
    transport: asyncio.BaseTransport, host: str, addresses: Addresses, names: Sequence[str]
) -> str | None:
    """Returns why a slave is not let in; None if it is. Without ``names`` any certificate that was verified will do."""
    if is_among(host, addresses) or is_loopback(host):
        return None
    certificate = transport.peer_certificate if isinstance(transport, TlsConnection) else {}
    if not certificate:
        return "it shows no certificate, and haAllowedAddresses does not name it"
    if names and common_name(certificate) not in names:
        return f"its certificate is of {common_name(certificate)[:100]!r}, which haAllowedNames does not name"
    return None
