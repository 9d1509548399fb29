"""``tally cluster``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tallystick.cli.options import PATH, SERVICE, WHOLE, Json, MetadataOption

if TYPE_CHECKING:
    from tallystick.admin.backup import Restoration
    from tallystick.admin.reconcile import Reconciliation

app = App(name="cluster", help="Make a new cluster; see how it is, look through its ledgers; back its metadata up.")


@app.command
def init(
    uri: Annotated[str, Parameter(help="sqlite:///path or zk+hierarchical://host:port/ledgers")],
    /,
    *,
    json: Json = False,
) -> None:
    """Make an empty cluster: its layout, instance id and list of bookies. Refuses a place where one exists.

    Example: `tally cluster init sqlite:///srv/tally/metadata.db`
    """
    import asyncio

    from tallystick.admin import cluster
    from tallystick.bookkeeper.metadata.uri import require_shared
    from tallystick.cli import output

    instance = asyncio.run(cluster.init(require_shared(uri)))
    if json:
        output.json_line({"uri": uri, "instance_id": instance})
    else:
        print(f"new cluster {instance} at {uri}")


@app.command
def status(*, service: MetadataOption = SERVICE, json: Json = False) -> int:
    """Show bookies that are down, read-only or in limbo, ledgers that lack copies, and lost entries.

    Exit code 3 unless every bookie serves and every ledger has its copies.

    Example: `tally cluster status`
    """
    import asyncio

    from tallystick.admin import repair
    from tallystick.bookkeeper.repair.shortfall import text_of
    from tallystick.cli import NOT_WELL, output, times

    health = asyncio.run(repair.cluster_status(service.resolve()))
    by_state: dict[str, list[str]] = {}
    for bookie in health.bookies:
        by_state.setdefault(bookie.registered.value, []).append(bookie.id)
    lost = {ledger: text_of(entries.runs) for ledger, entries in health.repair.lost.items()}
    output.details(
        {
            "well": health.is_well,
            "bookies": by_state,
            "limbo": dict(health.limbo),
            "damaged": dict(health.damaged),
            "repair_enabled": health.repair.is_enabled,
            "auditor": health.repair.auditor,
            "under_replicated": health.repair.marked,
            "since": health.repair.since,
            "in_hand": len(health.repair.in_hand),
            "findings": len(health.repair.findings),
            "reconciled": not health.is_held,
            "unreadable": list(health.repair.unreadable),
            "lost": lost if json else [f"ledger {ledger}: {entries}" for ledger, entries in lost.items()],
            "given_up": [
                f"ledger {line.ledger}: {line.lost or 'nothing'} by {line.who}" for line in health.repair.given_up
            ],
            "taken_out": [
                f"{times.shown(line.at_ms)} {line.bookie}: {line.command} by {line.who}: {line.outcome}"
                for line in health.taken_out
            ],
        },
        json=json,
    )
    return 0 if health.is_well else NOT_WELL


@app.command
def audit(*, service: MetadataOption = SERVICE, json: Json = False) -> int:
    """Look through the metadata of all ledgers, and list those that name a bookie that is not registered.

    Nothing is marked or changed. Exit code 3 if there is a finding.

    Example: `tally cluster audit --json`
    """
    import asyncio

    from tallystick.admin import repair
    from tallystick.cli import NOT_WELL, output

    with output.progress("ledgers") as count:
        audit_report = asyncio.run(repair.cluster_audit(service.resolve(), count))
    rows = [
        {"ledger": one.ledger, "problem": one.problem, "bookies": list(one.bookies)} for one in audit_report.findings
    ]
    output.rows(
        rows,
        json=json,
        empty=f"looked through {output.quantity(audit_report.ledgers, 'ledger', 'ledgers')}: no finding",
    )
    return NOT_WELL if rows else 0


@app.command
def zk_acl(
    *,
    show: Annotated[bool, Parameter(negative=(), help="Count nodes by to whom they belong.")] = False,
    set_: Annotated[
        bool, Parameter(name="--set", negative=(), help="Give all nodes to this identity, and to nobody else.")
    ] = False,
    clear: Annotated[bool, Parameter(negative=(), help="Give all nodes to everybody.")] = False,
    rotate: Annotated[
        bool, Parameter(negative=(), help="Give nodes that are not everybody's to this identity as well.")
    ] = False,
    service: MetadataOption = SERVICE,
    json: Json = False,
) -> int:
    """Show and change to whom a cluster's nodes in ZooKeeper belong, while everything runs.

    The identity is the one behind the ? of the metadata URI. Exit code 3 while a node is not as ordered, or is closed
    to this identity: run it again, which goes on with what is left.

    Example: `tally cluster zk-acl --show --uri 'zk://zk1:2181/ledgers?zkUser=bk&zkPasswordFile=/etc/tally/zk'`
    """
    import asyncio

    from tallystick.admin import zk_acl
    from tallystick.cli import NOT_WELL, output
    from tallystick.errors import UsageError

    orders = [name for name, given in zip(zk_acl.ORDERS, (show, set_, clear, rotate), strict=True) if given]
    if len(orders) != 1:
        raise UsageError("one of --show, --set, --clear and --rotate says what is done")
    with output.progress("nodes") as count:
        now, done = asyncio.run(zk_acl.zk_acl(service.resolve(), orders[0], count))
    fields: dict[str, Any] = {} if done is None else {"changed": done.changed}
    fields |= {
        "nodes": now.nodes,
        "belong_to": dict(now.by_acl) if json else [f"{acls}: {number}" for acls, number in now.by_acl.most_common()],
        "differing": now.differing,
        "closed": now.closed,
        "first": now.first,
    }
    output.details(fields, json=json)
    return NOT_WELL if now.differing or now.closed else 0


@app.command
def backup(
    file: Annotated[str, PATH, Parameter(help="The file to make; none is overwritten.")],
    /,
    *,
    service: MetadataOption = SERVICE,
    json: Json = False,
) -> None:
    """Copy a cluster's metadata in SQLite, as it is at one moment, while the cluster runs. Its owner alone can read it.

    Example: `tally cluster backup /backups/tally-monday.db`
    """
    from tallystick.admin.backup import backup
    from tallystick.cli import output

    content = backup(service.resolve(), file)
    output.details(
        {
            "file": file,
            "instance_id": content.instance,
            "ledgers": len(content.ledgers),
            "next_ledger": content.next_ledger,
            "streams_and_cursors": len(content.streams),
            "bookies": len(content.cookies),
        },
        json=json,
    )


@app.command
def restore(
    file: Annotated[str, PATH, Parameter(help="What `tally cluster backup` made.")],
    /,
    *,
    service: MetadataOption = SERVICE,
    next_ledger: Annotated[
        int | None,
        WHOLE,
        Parameter(
            help="Ledger ids are given out from here on: above all that were ever given. For bookies whose folders "
            "cannot be read here."
        ),
    ] = None,
    yes: Annotated[bool, Parameter(negative=(), help="Do it. Without, it is only said what it would mean.")] = False,
    json: Json = False,
) -> None:
    """Put a backup in the place of a cluster's metadata, with all bookies and clients stopped.

    Says what goes back, and asks each bookie's folders for its highest ledger, so that no id is given out twice. The
    file that was there is kept beside it. Ledgers that were made since the backup stay on the bookies, which delete
    nothing until `tally cluster reconcile` has shown what lacks, and you confirmed.

    Example: `tally cluster restore /backups/tally-monday.db --uri sqlite:///srv/tally/metadata.db --yes`
    """
    from tallystick.admin.backup import restore
    from tallystick.cli import output

    output.details(_fields(restore(service.resolve(), file, next_ledger=next_ledger, do=yes)), json=json)
    if not yes and not json:
        print("nothing was changed: give --yes to put it back")
    elif not json:
        print("bookies delete nothing from now on: start them, and see `tally cluster reconcile`")


@app.command
def reconcile(
    *,
    service: MetadataOption = SERVICE,
    without: Annotated[
        tuple[str, ...], Parameter(help="A bookie that has not said what it has, and will not. Repeatable.")
    ] = (),
    confirm: Annotated[
        str | None,
        Parameter(help="Let bookies delete again: the code that stands under the list of what lacks."),
    ] = None,
    json: Json = False,
) -> int:
    """After `tally cluster restore`: show which ledgers bookies have and the metadata lacks, and what went back.

    No bookie deletes a ledger until you confirmed what is listed. Exit code 3 until then.

    Example: `tally cluster reconcile --uri sqlite:///srv/tally/metadata.db`
    """
    import asyncio

    from tallystick.admin.reconcile import Confirmation, reconcile
    from tallystick.cli import NOT_WELL, output
    from tallystick.cli.operators import operator

    confirmation = None if confirm is None else Confirmation(operator(), confirm)
    result = asyncio.run(reconcile(service.resolve(), confirmation=confirmation, without=without))
    if result is None:
        output.details({"restored": False}, json=json)
        return 0
    output.details(_reconciliation(result, json=json), json=json)
    is_confirmed = result.restored.confirmed_ms is not None
    if not is_confirmed and not json:
        print(f"bookies delete nothing: if you agree to what is listed, --confirm {result.code} lets them")
    return 0 if is_confirmed else NOT_WELL


def _reconciliation(result: Reconciliation, *, json: bool) -> dict[str, Any]:
    """Return what is told of restored metadata."""
    from tallystick.cli.times import shown

    restored, lacking = result.restored, result.lacking
    confirmed_ms = restored.confirmed_ms
    rows: list[Any] = (
        [{"first": run.first, "last": run.last, "bookies": [*run.bookies], "kept": run.is_kept} for run in lacking]
        if json
        else [
            f"{_span(run.first, run.last)} on {', '.join(run.bookies)}: "
            + ("kept until `tally bookie collect --now`" if run.is_kept else "deleted when you confirm")
            for run in lacking
        ]
    )
    return {
        "restored": shown(restored.at_ms),
        "epoch": restored.epoch,
        "next_ledger": restored.next_ledger,
        "lacking": rows,
        "lacking_ledgers": sum(run.last - run.first + 1 for run in lacking) + result.more,
        "entries_deleted": [_span(first, last) for first, last in result.deleted],
        "open_ledgers": [*result.still_open],
        "compared": restored.is_compared,
        "lost_ledgers": len(restored.lost_ledgers),
        "streams": [*restored.streams],
        "cursors": [*restored.cursors],
        "applications": [*restored.applications],
        "unheard": [*result.unheard],
        **({"code": result.code} if json else {}),
        "confirmed": None if confirmed_ms is None else f"{shown(confirmed_ms)} by {restored.confirmed_by}",
    }


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if first < last else str(first)


def _fields(restored: Restoration) -> dict[str, Any]:
    """Return what is told of putting a backup back."""
    return {
        "instance_id": restored.instance,
        "ledgers": restored.ledgers,
        "next_ledger": restored.next_ledger,
        "highest": [f"{bookie}: {ledger}" for bookie, ledger in restored.highest.items()],
        "unknown": [f"{bookie}: {why}" for bookie, why in restored.unknown.items()],
        "open_ledgers": [*restored.open_ledgers],
        "compared": restored.compared,
        "lost_ledgers": [*restored.lost_ledgers],
        "streams": [*restored.streams],
        "cursors": [*restored.cursors],
        "applications": [*restored.applications],
        "old_file": restored.aside,
        "done": restored.done,
    }
