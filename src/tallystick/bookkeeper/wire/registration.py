"""A bookie's registration (``BookieServiceInfoFormat``), and what a bookie id may look like.

The bytes are protobuf: ``6 endpoints {1 id, 2 port, 3 host, 4 protocol, 5 auth…, 6 extensions…}``, ``7 properties``. A
bookie of the original that predates them registers empty bytes; its id then is host:port.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from google.protobuf.message import DecodeError

from tallystick.bookkeeper.wire.formats_pb2 import BookieServiceInfoFormat
from tallystick.bookkeeper.wire.texts import texts
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, Endpoint
from tallystick.errors import MetadataError, UsageError

READ_ONLY_FOLDER = "readonly"  # beside the registrations of the writable ones, so no bookie's name
RACK, MACHINE = "rack", "machine"  # properties of ours: where the bookie is
LIMBO = "limbo"  # and of how many ledgers it does not know what it has
AUTH = "auth"  # and by what it takes for who somebody is: names, with a comma between
TLS_EXTENSION = "tls"  # of an endpoint, as the original has it: START_TLS is taken there
# The original's pattern, spelled out; an id becomes the name of a znode, which "." and ".." cannot be.
_BOOKIE_ID = re.compile(r"[A-Za-z0-9:;<=>?@\[\\\]^_.\-]+")


def check_bookie_id(bookie: BookieId) -> BookieId:
    """Return the id itself. Raises UsageError for one that the original would not take."""
    if not _BOOKIE_ID.fullmatch(bookie) or bookie in (READ_ONLY_FOLDER, ".", ".."):
        raise UsageError("a bookie id has letters, digits and . : - _ only, and is not 'readonly'", bookie=bookie)
    return bookie


def auth_offers(info: BookieInfo | None) -> tuple[str, ...]:
    """Return by what a bookie lets a client show who it is; nothing if its registration does not say."""
    return tuple(filter(None, info.properties.get(AUTH, "").split(","))) if info is not None else ()


def encode(info: BookieInfo) -> bytes:
    """Raises UsageError for an endpoint that cannot be stored."""
    message = BookieServiceInfoFormat()
    try:
        for each in info.endpoints:
            message.endpoints.add(
                id=each.id,
                port=each.port,
                host=each.host,
                protocol=each.protocol,
                auth=each.auth,
                extensions=each.extensions,
            )
        message.properties.update(info.properties)
    except (ValueError, TypeError) as error:
        raise UsageError(f"the registration cannot be stored: {error}") from error
    return message.SerializeToString(deterministic=True)


def decode(data: bytes, bookie: BookieId) -> BookieInfo:
    """Decode what ``bookie`` registered. Raises MetadataError for damaged bytes."""
    if not data:
        return _from_id(bookie)
    try:
        message = BookieServiceInfoFormat.FromString(data)
        if not message.IsInitialized():
            raise ValueError("fields are missing")
        properties = dict(message.properties)
        texts((*properties, *properties.values()))
        return BookieInfo(tuple(map(_to_endpoint, message.endpoints)), MappingProxyType(properties))
    except (DecodeError, ValueError) as error:
        raise MetadataError(f"a registration is damaged: {error}", bookie=bookie) from error


def decode_or_empty(data: bytes, bookie: BookieId) -> BookieInfo:
    """Decode a registration of a list: a damaged one has no address, and the other bookies are listed all the same."""
    try:
        return decode(data, bookie)
    except MetadataError:
        return BookieInfo(())


def _to_endpoint(message: BookieServiceInfoFormat.Endpoint) -> Endpoint:
    name, host, protocol = texts((message.id, message.host, message.protocol))
    return Endpoint(name, host, message.port, protocol, texts(message.auth), texts(message.extensions))


def _from_id(bookie: BookieId) -> BookieInfo:
    host, _, port = bookie.rpartition(":")
    if not host or not re.fullmatch(r"\d{1,5}", port, re.ASCII) or int(port) > 65535:
        return BookieInfo(())
    return BookieInfo.at(host, int(port))
