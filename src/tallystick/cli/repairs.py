"""What the terminal shows of repairs."""

from __future__ import annotations

import tallystick
from tallystick.admin import decommission as decommissioning
from tallystick.admin import repair as repairing
from tallystick.admin.decommission import Decommission
from tallystick.admin.repair import PlaceReport
from tallystick.bookkeeper.repair.give_up import Loss
from tallystick.bookkeeper.repair.ledger_repair import Deferred, Lost
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.repair.shortfall import text_of
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.cli import output
from tallystick.cli.connecting import connect
from tallystick.cli.operators import operator
from tallystick.runtime import arguments


async def explain(uri: str, ledger: LedgerId) -> list[PlaceReport]:
    """What each bookie has of what it should have."""
    async with tallystick.connect(uri) as bk:
        return await repairing.explain(bk, ledger)


async def repair(uri: str, ledger: LedgerId) -> tuple[bool, str]:
    """Whether nothing is missing any more, and why that is, or is not."""
    async with connect(uri) as bk:
        outcome = await repairing.repair_ledger(bk, ledger, open_grace_s=RepairSettings().open_grace_s)
    if isinstance(outcome, Deferred):
        return False, outcome.reason
    if isinstance(outcome, Lost):
        return False, f"no bookie that answers has a good copy of entries {text_of(outcome.entries)}"
    return True, "the ledger was deleted" if outcome.is_deleted else "every bookie has what it should have"


async def loss_of(uri: str, ledger: LedgerId) -> Loss:
    """What would be given up."""
    async with connect(uri) as bk:
        return await repairing.loss_of(bk, ledger)


async def give_up(uri: str, shown: Loss) -> Loss:
    """Give up what was shown, in the name of who runs this."""
    async with connect(uri) as bk:
        return await repairing.give_up(bk, shown, operator())


def loss_row(loss: Loss) -> dict[str, object]:
    """A loss as the terminal shows it."""
    return {
        "ledger": loss.ledger,
        "closes_after": loss.last_entry if loss.closes else None,
        "dropped": text_of([(loss.last_entry + 1, loss.top)]) if loss.top > loss.last_entry else None,
        "lost": text_of(loss.lost) or None,
        "entries": sum(last - first + 1 for first, last in loss.lost),
        "gone_bookies": ", ".join(loss.absent) or None,
    }


async def decommission(uri: str, bookie: BookieId, open_grace_s: float, *, force: bool) -> Decommission:
    """Take a bookie out, as far as that can be done now. Raises UsageError, by the name that the option has here."""
    settings = RepairSettings(open_grace_s=arguments.number(open_grace_s, "--open-grace"))
    with output.progress("ledgers") as count:
        async with connect(uri) as bk:
            return await decommissioning.decommission(bk, bookie, settings, count, operator(), force=force)
