"""Clients of a cluster in the processes of Spark: of all of it, or of bookies whose addresses are known.

The keys of either are those behind the ``?`` of the metadata URI, or else of the file that ``TALLY_SECURITY`` names,
and are read where the client is. A name without a folder is that of a file given to executors (``key_files.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.security import ClientSecurity
from tallystick.bookkeeper.ledger.settings import ClientSettings, secured
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.uri import client_options
from tallystick.bookkeeper.stream.client import BookKeeper, connect
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import BookieUnavailable
from tallystick.pipeline.key_files import key_file
from tallystick.runtime.events import Events
from tallystick.runtime.log import log_listener
from tallystick.runtime.machine import this_machine

Address = tuple[str, int]
Keys = tuple[tuple[str, str], ...]  # the options of a metadata URI: names of files, and no secret
_NO_FILES = frozenset(("user", "authMechanisms", "authRequired"))


def keys_of(uri: str) -> Keys:
    """Returns the options of a metadata URI. Raises UsageError."""
    return tuple(client_options(uri).items())


def settings_here(keys: Keys) -> ClientSettings:
    """Returns the settings of a client in this process. Raises UsageError."""
    named = {name: value if name in _NO_FILES else key_file(value) for name, value in keys}
    return secured(replace(ClientSettings(), security=ClientSecurity.of_options(named)))


async def connect_here(uri: str, *, streams: StreamClientSettings | None = None) -> BookKeeper:
    """Connect to the cluster at ``uri`` from this process. Raises as ``connect``."""
    return await connect(uri, settings=settings_here(keys_of(uri)), streams=streams)


def addresses_of(bookies: RegisteredBookies) -> dict[BookieId, Address]:
    """Returns where the registered bookies listen, as far as they say so."""
    infos = {**bookies.read_only, **bookies.writable}
    return {bookie: info.address for bookie, info in infos.items() if info.address is not None}


def bookie_client(addresses: Mapping[BookieId, Address], keys: Keys = ()) -> BookieClient:
    """Call and use it on one running loop, then ``close`` it. A bookie without address is unavailable, never a "no".
    Raises UsageError."""

    async def resolve(bookie: BookieId) -> Address:
        if bookie not in addresses:
            raise BookieUnavailable("the bookie was not registered when the query was planned", bookie=bookie)
        return addresses[bookie]

    return BookieClient(this_machine(Events(log_listener())), resolve, settings_here(keys))


@dataclass(frozen=True)
class BookieAddresses:
    """What a worker connects to for ledgers: the bookies of a plan."""

    addresses: Mapping[BookieId, Address]
    keys: Keys = ()

    async def connect(self) -> BookieClient:
        return bookie_client(self.addresses, self.keys)
