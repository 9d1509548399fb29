"""Clients for bookies whose addresses are known: no metadata service is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.settings import ClientSettings, secured
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import BookieUnavailable
from tallystick.runtime.events import Events
from tallystick.runtime.log import log_listener
from tallystick.runtime.machine import this_machine

Address = tuple[str, int]


def addresses_of(bookies: RegisteredBookies) -> dict[BookieId, Address]:
    """Returns where the registered bookies listen, as far as they say so."""
    infos = {**bookies.read_only, **bookies.writable}
    return {bookie: info.address for bookie, info in infos.items() if info.address is not None}


def bookie_client(addresses: Mapping[BookieId, Address]) -> BookieClient:
    """Call and use it on one running loop, then ``close`` it. A bookie without address is unavailable, never a "no".

    Its keys are those of the file that ``TALLY_SECURITY`` names on this machine. Raises UsageError.
    """

    async def resolve(bookie: BookieId) -> Address:
        if bookie not in addresses:
            raise BookieUnavailable("the bookie was not registered when the query was planned", bookie=bookie)
        return addresses[bookie]

    return BookieClient(this_machine(Events(log_listener())), resolve, secured(ClientSettings()))


@dataclass(frozen=True)
class BookieAddresses:
    """What a worker connects to for ledgers: the bookies of a plan."""

    addresses: Mapping[BookieId, Address]

    async def connect(self) -> BookieClient:
        return bookie_client(self.addresses)
