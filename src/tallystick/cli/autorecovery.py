"""``tally autorecovery``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tallystick.cli import NOT_WELL
from tallystick.cli.options import CONFIG, SERVICE, Config, Json, MetadataOption

if TYPE_CHECKING:
    from tallystick.admin.repair import RepairStatus

app = App(name="autorecovery", help="Make copies good that a lost bookie took away: run it, switch it, see it.")


@app.command
def run(*, config: Config = CONFIG) -> int:
    """Run an auditor and a replicator until told to stop (SIGTERM, Ctrl-C).

    Of all auditors of a cluster one is elected; replicators share the work.

    Example: `tally autorecovery run --set metadataServiceUri=zk+hierarchical://127.0.0.1:2181/ledgers`
    """
    from tallystick.node import autorecovery_main

    return autorecovery_main(config.config, config.overrides())


@app.command
def enable(*, service: MetadataOption = SERVICE) -> None:
    """Let auditors and replicators of the cluster work again, the original's as well.

    Example: `tally autorecovery enable`
    """
    import asyncio

    from tallystick.admin import repair

    changed = asyncio.run(repair.switch(service.resolve(), enabled=True))
    print("enabled" if changed else "it was enabled already")


@app.command
def disable(*, service: MetadataOption = SERVICE) -> None:
    """Let nobody mark or repair ledgers until it is enabled again: before work on many machines.

    Example: `tally autorecovery disable`
    """
    import asyncio

    from tallystick.admin import repair

    changed = asyncio.run(repair.switch(service.resolve(), enabled=False))
    print("disabled, until: tally autorecovery enable" if changed else "it was disabled already")


@app.command
def audit(
    *,
    now: Annotated[
        bool, Parameter(help="Wait for no grace, and take bookies for lost however many are gone at once.")
    ] = False,
    service: MetadataOption = SERVICE,
) -> None:
    """Make the auditor look through all ledgers; every bookie that is gone is lost at once.

    Fails where no auditor runs.

    Example: `tally autorecovery audit --now`
    """
    import asyncio

    from tallystick.admin import repair
    from tallystick.errors import Unavailable, UsageError

    if not now:
        raise UsageError("bookies that are gone are taken for lost at once: say so with --now")
    try:
        is_enabled = asyncio.run(repair.order_audit(service.resolve()))
    except Unavailable as error:
        raise Unavailable(f"{error.message}: start one with `tally autorecovery run`") from error
    when = "within seconds" if is_enabled else "once repair is enabled: tally autorecovery enable"
    print(f"ordered: the auditor marks the ledgers of every bookie that is gone, {when}")


@app.command
def status(*, service: MetadataOption = SERVICE, json: Json = False) -> int:
    """Show whether it is enabled, who the auditor is, and which ledgers lack copies. Exit code 3 if any does, or
    a node cannot be read.

    Example: `tally autorecovery status`
    """
    import asyncio

    from tallystick.admin import repair
    from tallystick.cli import output

    state: RepairStatus = asyncio.run(repair.status(service.resolve()))
    output.details(
        {
            "enabled": state.is_enabled,
            "auditor": state.auditor,
            "lost_after_s": state.delay_s,
            "marked": state.marked,
            "in_hand": len(state.in_hand),
            "since": state.since,
            "unreadable": list(state.unreadable),
        },
        json=json,
    )
    if state.marks:
        if not json:
            print()
        rows = [
            {
                "ledger": mark.ledger,
                "missing": list(mark.bookies),
                "since": mark.since,
                "in_hand_of": state.in_hand.get(mark.ledger),
            }
            for mark in state.marks
        ]
        output.rows(rows, json=json, empty="")
    return 0 if state.is_enabled and not (state.marks or state.unreadable) else NOT_WELL
