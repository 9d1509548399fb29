"""Settings of the ledger client, with the original's defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from tallystick.bookkeeper.ledger.policies import POLICIES, Policy
from tallystick.bookkeeper.ledger.security import ClientSecurity
from tallystick.errors import UsageError
from tallystick.runtime.arguments import check_settings, optional

_MAY_BE_ZERO = (
    "absent_bookie_s",
    "add_quorum_timeout_s",
    "ask_last_s",
    "disk_weights_s",
    "explicit_lac_interval_s",
    "slow_add_s",
)
WIRES = ("auto", "v2", "v3")


@dataclass(frozen=True)
class ClientSettings:
    """Time-outs and bounds of a client of ledgers, a line each, with units in the names.

    Raises UsageError for values that cannot work.
    """

    # "auto": adds and reads by version 2; what that lacks by version 3, on a second connection. "v2", "v3": one alone.
    wire: str = "auto"
    add_timeout_s: float = 5.0  # an add without response for this long counts as failed (addEntryTimeoutSec)
    read_timeout_s: float = 5.0  # readEntryTimeoutSec
    add_quorum_timeout_s: float = 0.0  # an entry without its ack quorum for this long ends its writer; 0: for ever
    connect_timeout_s: float = 10.0
    connections_per_bookie: int = 1  # of each protocol; a ledger's id says which is its own (numChannelsPerBookie)
    tcp_keep_alive: bool = True  # idle connections are probed (clientSockKeepalive)
    max_frame_bytes: int = 5_242_876  # what an original bookie accepts: its 5 MiB count the length field too
    max_inflight_bytes: int = (
        32 * 1024 * 1024
    )  # payload of one writer unconfirmed or held for a bookie; beyond it append() waits
    read_window_bytes: int = 8 * 1024 * 1024  # asked for and not yet delivered by one read
    # A ledger that was idle for so long after its last confirmed append tells its LAC by itself, by version 3, so that
    # who follows it gets the last entry. 0: never (explicitLacInterval, which is 0 there).
    explicit_lac_interval_s: float = 0.1
    speculative_read_s: float = 2.0  # another replica is asked when the first is silent for this long
    ask_last_s: float = 60.0  # a bookie that was slow at a read, or failed it, is asked last for this long; 0: not
    sticky_reads: bool = False  # all reads of a ledger begin at one bookie, where each bookie has every entry
    quarantine_s: float = (
        60.0  # a bookie that failed is left out of new ensembles for this long while enough others remain
    )
    # An open writer, idle or not, replaces a bookie that is registered no more for so long, or for a third of the grace
    # that the metadata says (lostBookieRecoveryDelay), if that is less; 0: when an append fails.
    absent_bookie_s: float = 200.0
    slow_add_s: float = 0.0  # a bookie with longer adds, and than its peers', is put there, too; 0: not
    placement: str = "random"  # or "rack-aware", "region-aware": which bookies take a ledger (ensemblePlacementPolicy)
    min_racks: int = 2  # in each write quorum, where they can be had (minNumRacksPerWriteQuorum)
    enforce_min_racks: bool = False  # or there is no ledger (enforceMinNumRacksPerWriteQuorum)
    min_regions: int = (
        2  # in each ack quorum of "region-aware", or there is no ledger (reppMinimumRegionsForDurability)
    )
    rack_file: str | None = None  # lines bookie=rack, for bookies that register none
    pulsar_racks: bool = False  # and for those without a line Pulsar's node of racks (BookieRackAffinityMapping)
    rack_script: str | None = None  # and a program that prints the rack of each host (networkTopologyScriptFileName)
    disk_weights_s: float = 0.0  # bookies are asked for their free disk so often, to take more with more; 0: never
    max_disk_weight: float = 3.0  # times the median (bookieMaxWeightMultipleForWeightBasedPlacement)

    degraded_writes: bool = True  # a ledger is written on without a failed bookie that no other can replace
    no_quorum_s: float = 30.0  # a degraded writer ends when its ack quorum could not be met for this long
    security: ClientSecurity | None = None  # how bookies and this client show each other who they are; None: not

    def __post_init__(self) -> None:
        check_settings(self, may_be_zero=_MAY_BE_ZERO)
        optional(self.security, ClientSecurity, "security")
        if self.wire not in WIRES:
            raise UsageError(f"wire is one of {', '.join(WIRES)}", given=self.wire)
        if self.placement not in POLICIES:
            raise UsageError(f"placement is one of {', '.join(POLICIES)}", given=self.placement)

    @property
    def policy(self) -> Policy:
        """The placement policy that these settings say."""
        return Policy(self.placement, self.min_racks, self.enforce_min_racks, self.min_regions)


def secured(settings: ClientSettings, uri: str | None = None) -> ClientSettings:
    """Return the settings with the security of the metadata ``uri``, or else of the file that ``TALLY_SECURITY`` names,
    where they have none and there is one. Raises UsageError."""
    if settings.security is not None:
        return settings
    security = (ClientSecurity.of_uri(uri) if uri is not None else None) or ClientSecurity.of_environment(os.environ)
    return settings if security is None else replace(settings, security=security)
