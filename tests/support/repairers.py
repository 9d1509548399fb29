"""Auditors and replicators of either kind, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from support.java import SMALL, Java
from support.peers import Driver, bookie_configuration, tally

GRACE_S = 1


class Repairer(Driver):
    """It works from its first line on, until it is killed."""

    @classmethod
    async def start_original(
        cls,
        java: Java,
        part: str,
        uri: str,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        flags: tuple[str, ...] = SMALL,
    ) -> Driver:
        """``part``: "auditor" or "worker"."""
        home = folder / f"java-{part}"
        home.mkdir(parents=True, exist_ok=True)
        file = home / "repair.conf"
        values = {
            "lostBookieRecoveryDelay": GRACE_S,
            "openLedgerRereplicationGracePeriod": 2000,
            "rwRereplicateBackoffMs": 500,
            "useV2WireProtocol": "true",
            **(settings or {}),
        }
        file.write_text(bookie_configuration(uri, 1, home, values))
        return await cls._start("java", java.command("RepairPeer", part, str(file), flags=flags), home, part)

    @classmethod
    async def start_ours(cls, uri: str, folder: Path, **settings: object) -> Driver:
        """``tally autorecovery run``: both parts."""
        home = folder / "tally-repair"
        home.mkdir(parents=True, exist_ok=True)
        values = {
            "metadataServiceUri": uri,
            "zkTimeout": 4000,
            "lostBookieRecoveryDelay": GRACE_S,
            "openLedgerRereplicationGracePeriod": 2000,
            "replicationPollInterval": 200,
            "replicationRetryInterval": 500,
            **settings,
        }
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        return await cls._start("tally", tally("autorecovery", "run", *words), home, "repair")
