"""Ledgers as the first clients of the original left them."""

from __future__ import annotations

from dataclasses import replace

from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.wire.values import DigestType, LedgerId


async def rewrite_as_format_1(driver: MetadataDriver, ledger: LedgerId) -> None:
    """Store the metadata of a ledger anew in format 1, which has neither password nor digest type."""
    stored = await driver.read_ledger(ledger)
    metadata = replace(
        stored.value, format_version=1, has_password=False, password=b"", digest_type=DigestType.CRC32, ctoken=0
    )
    await driver.write_ledger(ledger, metadata, stored.version)
