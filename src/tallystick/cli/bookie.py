"""``tally bookie``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tallystick.cli import NOT_WELL
from tallystick.cli.options import CONFIG, NUMBER, PATH, SERVICE, Config, Instances, Json, MetadataOption

if TYPE_CHECKING:
    from tallystick.admin.bookies import BookieDetails, BookieStatus
    from tallystick.bookkeeper.bookie.folder_room import FolderRoom

app = App(name="bookie", help="Run a storage node; list and inspect those of a cluster.")


@app.command
def run(
    *,
    rack: Annotated[
        str | None, Parameter(help="Where it is, for clients that place by racks: /rack, /region/rack.")
    ] = None,
    machine: Annotated[
        str | None, Parameter(help="A name that it shares with other bookies of its machine; else its host is that.")
    ] = None,
    rejoin: Annotated[
        bool, Parameter(help="Its disk is empty, or an older copy: fetch what it lacks, and deny nothing until then.")
    ] = False,
    instances: Instances = None,
    config: Config = CONFIG,
) -> int:
    """Run a bookie until it is told to stop (SIGTERM, Ctrl-C).

    With --instances several, for instance one for each disk: the settings are those of all, and each gets an id, ports
    and folders of its own from them.

    Example: `tally bookie run --config bookie.toml --set bookiePort=3182 --rack /rack1`
    """
    from tallystick.node import bookie_main, bookies_main

    where = {name: value for name, value in (("rack", rack), ("machine", machine)) if value is not None}
    overrides = {**config.overrides(), **where}
    if instances is not None:
        return bookies_main(config.config, overrides, instances, rejoin=rejoin)
    return bookie_main(config.config, overrides, rejoin=rejoin)


@app.command(name="list")
def list_(*, service: MetadataOption = SERVICE, json: Json = False) -> None:
    """List the bookies: registered ones, and those that joined once and are down.

    Example: `tally bookie list --uri zk+hierarchical://127.0.0.1:2181/ledgers`
    """
    import asyncio

    from tallystick.admin import bookies, cluster
    from tallystick.cli import output

    async def statuses() -> list[BookieStatus]:
        async with cluster.metadata(service.resolve()) as driver:
            return await bookies.list_bookies(driver)

    bookie_statuses = asyncio.run(statuses())
    rows = [_row(bookie) for bookie in bookie_statuses]
    if any(bookie.ledgers_ahead for bookie in bookie_statuses):
        rows = [row | {"ledgers_ahead": one.ledgers_ahead} for row, one in zip(rows, bookie_statuses, strict=True)]
    if any(bookie.is_drained for bookie in bookie_statuses):
        rows = [row | {"drained": one.is_drained} for row, one in zip(rows, bookie_statuses, strict=True)]
    if any(bookie.ledgers_in_limbo for bookie in bookie_statuses):
        rows = [row | {"limbo": one.ledgers_in_limbo} for row, one in zip(rows, bookie_statuses, strict=True)]
    output.rows(rows, json=json, empty="no bookie has joined this cluster")


def _moment(milliseconds: int) -> str | None:
    from tallystick.cli import times

    return times.shown(milliseconds) if milliseconds else None


def _row(bookie: BookieStatus) -> dict[str, Any]:
    address = bookie.info.address if bookie.info else None
    return {
        "bookie": bookie.id,
        "state": bookie.registered.value,
        "address": f"{address[0]}:{address[1]}" if address else None,
    }


@app.command
def info(
    bookie: Annotated[str, Parameter(help="Its id, as in: tally bookie list")],
    /,
    *,
    service: MetadataOption = SERVICE,
    json: Json = False,
) -> int:
    """Show one bookie: registration, cookie, whether it answers, and the space of its disks.

    Example: `tally bookie info bookie-2`
    """
    import asyncio

    from tallystick.admin import bookies, cluster
    from tallystick.cli import output

    async def status() -> BookieDetails:
        uri = service.resolve()
        async with cluster.metadata(uri) as driver:
            return await bookies.bookie_details(driver, bookie, uri)

    details = asyncio.run(status())
    row = _row(details.bookie)
    if details.bookie.is_drained:
        row["drained"] = True
    if details.deletions_waiting:
        row["deletions_waiting"] = details.deletions_waiting
    if details.surplus_waiting:
        row["surplus_waiting"] = details.surplus_waiting
    if details.bookie.ledgers_ahead:
        row["ledgers_ahead"] = details.bookie.ledgers_ahead
    if details.bookie.ledgers_in_limbo:
        row["limbo"] = details.bookie.ledgers_in_limbo
    if details.bookie.entries_damaged:
        row["damaged"] = details.bookie.entries_damaged
    if (scrub := details.bookie.scrub) is not None:
        row["scrub_percent"] = scrub.percent
        row["scrub_ended"], row["scrub_ends"] = _moment(scrub.ended_ms), _moment(scrub.ends_ms)
    row["answers_ms"] = None if details.answers_ms is None else round(details.answers_ms, 1)
    row |= _places(details, json=json)
    output.details(row, json=json)
    return 0 if details.problem is None else NOT_WELL


def _places(details: BookieDetails, *, json: bool) -> dict[str, Any]:
    """Return what `tally bookie info` tells of a bookie's disks, and of where it is."""
    from tallystick.bookkeeper.bookie.folder_room import FOLDERS

    row = dict[str, Any]()
    if details.space is not None:
        row["free_bytes"], row["total_bytes"] = details.space.free_bytes, details.space.total_bytes
    if folders := details.bookie.folders:
        row["folders"] = [_folder(one) if json else str(one) for one in folders]
    if details.problem:
        row["problem"] = details.problem
    if details.bookie.info:
        row["endpoints"] = [f"{one.protocol} {one.host}:{one.port}" for one in details.bookie.info.endpoints]
        row["properties"] = {name: value for name, value in details.bookie.info.properties.items() if name != FOLDERS}
    if details.cookie:
        row["journal_dirs"] = list(details.cookie.journal_dirs)
        row["ledger_dirs"] = list(details.cookie.ledger_dirs)
        row["cluster"] = details.cookie.instance_id
    return row


def _folder(room: FolderRoom) -> dict[str, Any]:
    state = room.state.value or "good"
    return {"path": room.path, "used_percent": room.used_percent, "total_bytes": room.total_bytes, "state": state}


@app.command
def check(
    folder: Annotated[str, PATH, Parameter(help="Its ledger folders, as ledgerDirectories names them.")],
    /,
    *,
    journal: Annotated[str | None, PATH, Parameter(help="Its journal folders, where those are others.")] = None,
    json: Json = False,
) -> int:
    """Look for damage in the folders of a bookie that is down, entry by entry; nothing is written.

    Example: `tally bookie check /srv/bookie/ledgers --journal /srv/bookie/journal`
    """
    from tallystick.admin import bookies
    from tallystick.cli import output

    report = bookies.check_folders(folder.split(","), (journal or folder).split(","))
    damages = [vars(damage) for damage in report.damages]
    row: dict[str, Any] = {
        "starts": report.can_start,
        "ledgers": report.ledgers,
        "limbo": report.in_limbo,
        "entry_logs": report.entry_logs,
        "log_bytes": report.log_bytes,
        "entries": report.entries,
        "commits_to_replay": report.journal_commits,
    }
    if report.folders:
        row["folders"] = [str(each) for each in report.folders]
    output.details({**row, "damages": damages} if json else row, json=json)
    if not json:
        output.rows(damages, json=False, empty="nothing is damaged")
    return NOT_WELL if report.damages else 0


@app.command
def forget(
    bookie: Annotated[str, Parameter(help="Its id, as in: tally bookie list")],
    /,
    *,
    service: MetadataOption = SERVICE,
) -> None:
    """Take a bookie that is down and holds nothing off the list of those that joined.

    Example: `tally bookie forget bookie-2`
    """
    import asyncio

    from tallystick.admin import bookies, cluster
    from tallystick.cli.operators import operator

    async def forgotten() -> None:
        async with cluster.metadata(service.resolve()) as driver:
            await bookies.forget_bookie(driver, bookie, operator())

    asyncio.run(forgotten())
    print(f"forgotten: {bookie}; folders of its that hold data start no bookie in this cluster any more")


@app.command
def collect(
    *,
    now: Annotated[
        bool, Parameter(help="Delete however many ledgers are gone: do not wait where they are too many at once.")
    ] = False,
    config: Config = CONFIG,
) -> None:
    """Make the bookie on this machine look for deleted ledgers soon, and give their space back.

    Example: `tally bookie collect --config bookie.toml --now`
    """
    from tallystick.admin.bookies import order_collection
    from tallystick.bookkeeper.bookie.keys import SCHEMA

    folder = SCHEMA.load(config.config, config.overrides()).settings.home
    order_collection(folder, now=now)
    print(
        f"ordered: the bookie on {folder} begins within seconds, or when it is started within the hour; "
        "it deletes what is proven gone twice, 60 s apart" + (", however many that are" if now else "")
    )


@app.command
def drain(
    *,
    undo: Annotated[bool, Parameter(help="Let it take new entries again.")] = False,
    config: Config = CONFIG,
) -> None:
    """Make the bookie on this machine read-only until it is undone, over restarts, too.

    It serves reads and takes what recovery writes back; ledgers that are written go on with other bookies.

    Example: `tally bookie drain --config bookie.toml`
    """
    from tallystick.admin import bookies
    from tallystick.bookkeeper.bookie.keys import SCHEMA

    folder = SCHEMA.load(config.config, config.overrides()).settings.home
    if undo:
        bookies.undo_drain(folder)
        print(f"undone: the bookie on {folder} takes new entries again within 10 s, if its disks have space")
    else:
        bookies.drain(folder)
        print(
            f"ordered: the bookie on {folder} is read-only within 10 s, and stays so until: tally bookie drain --undo"
        )


@app.command
def decommission(
    bookie: Annotated[str, Parameter(help="Its id, as in: tally bookie list")],
    /,
    *,
    open_grace: Annotated[
        float, NUMBER, Parameter(help="Seconds for which an open ledger must stand still before it is fenced.")
    ] = 600.0,
    force: Annotated[
        bool, Parameter(help="As an administrator: though too few bookies would stay, or another is taken out now.")
    ] = False,
    service: MetadataOption = SERVICE,
    json: Json = False,
) -> int:
    """Take a bookie out for good: others get copies of all that it has, then its cookie is deleted.

    One that is dead is taken for lost at once. One that lives is drained before, is copied from, and is to be stopped
    when no ledger names it any more; then ask again. Refused if fewer bookies would stay than the largest write quorum
    of a ledger. It can be broken off and asked for again. Exit code 3 while something is left to do.

    Example: `tally bookie decommission bookie-2`
    """
    import asyncio

    from tallystick.cli import output, repairs

    progress = asyncio.run(repairs.decommission(service.resolve(), bookie, open_grace, force=force))
    row = {"bookie": bookie, "done": progress.is_done, "moved": progress.moved, "left": len(progress.left)}
    if progress.is_registered and not progress.left:
        row["next"] = "no ledger names it: stop it, and ask again"
    if progress.left:
        row["reasons"] = [f"{ledger}: {reason}" for ledger, reason in list(progress.left.items())[:10]]
    output.details(row, json=json)
    return 0 if progress.is_done else NOT_WELL
