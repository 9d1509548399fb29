"""``tally ledger``. Of all commands only ``recover`` fences."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tallystick.cli.options import PASSWORD, SERVICE, SHAPE, WHOLE, Hex, Json, MetadataOption, Password, Shape

app = App(name="ledger", help="Write, read, follow, inspect, recover and delete ledgers.")

LedgerArgument = Annotated[int, WHOLE, Parameter(help="The ledger's id.")]
Ids = Annotated[bool, Parameter(help="Print ledger:entry and a tab in front of each payload.")]
Explain = Annotated[bool, Parameter(help="Print each decision of the protocol with its reason.")]


@app.command
def create(
    *, shape: Shape = SHAPE, service: MetadataOption = SERVICE, password: Password = PASSWORD, json: Json = False
) -> None:
    """Create an empty ledger and print its id.

    It stays open, but only the program that created a ledger can write to it: to create, write and close one use
    `tally ledger append`.

    Example: `tally ledger create --ensemble 3 --write-quorum 3 --ack-quorum 2`
    """
    import asyncio

    from tallystick.cli import entries, output

    ledger = asyncio.run(entries.create(service.resolve(), shape, password.read()))
    if json:
        output.json_line({"ledger": ledger})
    else:
        print(ledger)


@app.command(usage="Usage: tally ledger append [OPTIONS] [TEXT...]")
def append(
    *payloads: Annotated[str, Parameter(name="TEXT", help="Payloads; without any, each line of stdin is one.")],
    shape: Shape = SHAPE,
    keep_open: Annotated[
        bool, Parameter(help="Leave the ledger open at the end, as a writer that crashed would.")
    ] = False,
    deferred: Annotated[
        bool,
        Parameter(
            help="Let bookies acknowledge entries before they are on disk, and force all of them there at the end."
        ),
    ] = False,
    quiet: Annotated[bool, Parameter(help="Print no entry ids.")] = False,
    explain: Explain = False,
    service: MetadataOption = SERVICE,
    password: Password = PASSWORD,
    json: Json = False,
) -> None:
    """Create a ledger, append entries, close it. Prints ledger:entry of each entry once it is confirmed.

    With --deferred none is confirmed before the end, when all are forced onto the disks, and a bookie that fails
    on the way ends the ledger.

    Example: `seq 1 1000 | tally ledger append --quiet`
    """
    import asyncio

    from tallystick.cli import entries

    ending = entries.Ending(keep_open, deferred, quiet, json)
    asyncio.run(entries.append(service.resolve(), shape, password.read(), payloads, ending, explain=explain))


@app.command
def read(
    ledger: LedgerArgument,
    /,
    *,
    first: Annotated[int, WHOLE, Parameter(help="First entry.")] = 0,
    last: Annotated[int | None, WHOLE, Parameter(help="Last entry. By default the last one that is confirmed.")] = None,
    ids: Ids = False,
    hex_: Hex = False,
    explain: Explain = False,
    service: MetadataOption = SERVICE,
    password: Password = PASSWORD,
    json: Json = False,
) -> None:
    """Print the payloads of a ledger, one a line. Never fences.

    Of an open ledger those that are known to be confirmed.

    Example: `tally ledger read 7 --first 100 --last 199 --ids`
    """
    import asyncio

    from tallystick.cli import entries

    show = entries.printer(ids=ids, hex_=hex_, json=json)
    asyncio.run(entries.read(service.resolve(), ledger, password.read(), first, last, show, explain=explain))


@app.command
def tail(
    ledger: LedgerArgument,
    /,
    *,
    first: Annotated[
        int | None, WHOLE, Parameter(help="First entry. By default the tenth last that is confirmed.")
    ] = None,
    ids: Ids = False,
    hex_: Hex = False,
    explain: Explain = False,
    service: MetadataOption = SERVICE,
    password: Password = PASSWORD,
    json: Json = False,
) -> None:
    """Follow a ledger until it is closed and read to its end. Never fences.

    Entries appear as they are confirmed; the last one of an idle writer a moment later, when it tells bookies by itself
    that it is. Where bookies or the writer lack version 3 of the protocol, the newest entries of an idle open ledger
    appear when the writer appends again or closes.

    Example: `tally ledger tail 7`
    """
    import asyncio

    from tallystick.cli import entries, following

    show = entries.printer(ids=ids, hex_=hex_, json=json)
    work = entries.tail(service.resolve(), ledger, password.read(), first, show, explain=explain)
    asyncio.run(following.while_read(work))


@app.command(name="entries")
def entries_(
    ledger: LedgerArgument,
    /,
    *,
    on: Annotated[str, Parameter(help="The bookie's id, as in: tally bookie list")],
    service: MetadataOption = SERVICE,
    json: Json = False,
) -> None:
    """List which entries of a ledger a bookie has, as ranges of ids. Reads none of them.

    Example: `tally ledger entries 7 --on bookie-2`
    """
    import asyncio

    from tallystick.cli import entries

    asyncio.run(entries.stored(service.resolve(), ledger, on, json=json))


@app.command
def show(
    ledger: LedgerArgument,
    /,
    *,
    placement: Annotated[
        bool, Parameter(help="Show instead on which machines and racks its copies lie, and whether they lie apart.")
    ] = False,
    service: MetadataOption = SERVICE,
    json: Json = False,
) -> int:
    """Show a ledger's metadata: state, quorums, and which bookies hold which entries.

    The bookies of one that is not closed are asked how far they have come: a ledger whose writer goes on without a
    bookie is degraded, and that bookie is missing or behind. Never fences.

    Example: `tally ledger show 7`
    """
    import asyncio

    from tallystick.cli import NOT_WELL, ledgers, output

    if placement:
        fragments = asyncio.run(ledgers.find_placement(service.resolve(), ledger))
        obeys = all(fragment.obeys for fragment in fragments)
        output.details({"ledger": ledger, "obeys": obeys, "fragments": fragments}, json=json)
        return 0 if obeys else NOT_WELL
    metadata, replicas = asyncio.run(ledgers.find(service.resolve(), ledger))
    output.details(ledgers.details(ledger, metadata, replicas), json=json)
    return 0


@app.command(name="list")
def list_(*, service: MetadataOption = SERVICE, json: Json = False) -> None:
    """List all ledgers.

    Example: `tally ledger list --json`
    """
    import asyncio

    from tallystick.cli import ledgers, output

    statuses = asyncio.run(ledgers.find_all(service.resolve()))
    rows = [ledgers.details(one.id, one.metadata) if json else ledgers.row(one) for one in statuses]
    output.rows(rows, json=json, empty="no ledgers")


@app.command
def recover(
    ledger: LedgerArgument,
    /,
    *,
    explain: Explain = False,
    service: MetadataOption = SERVICE,
    password: Password = PASSWORD,
    json: Json = False,
) -> None:
    """Take a ledger from its writer: fence it, find its last entry, close it.

    The writer, if it still lives, can append no more. Nothing that it was told is stored gets lost. Where too many
    bookies are down to be sure of that, recovery fails, closes nothing and can be tried again. A closed ledger stays as
    it is.

    Example: `tally ledger recover 7 --explain`
    """
    import asyncio

    from tallystick.cli import entries

    asyncio.run(entries.recover(service.resolve(), ledger, password.read(), explain=explain, json=json))


@app.command
def repair(
    ledger: LedgerArgument,
    /,
    *,
    explain: Annotated[
        bool, Parameter(help="Only read all that each bookie should have, and show what it lacks; write nothing.")
    ] = False,
    give_up: Annotated[
        bool,
        Parameter(
            help="Show entries that no bookie has a good copy of any more, and give them up once that is confirmed."
        ),
    ] = False,
    yes: Annotated[bool, Parameter(help="Do not ask before entries are given up.")] = False,
    service: MetadataOption = SERVICE,
    json: Json = False,
) -> int:
    """Make good what any bookie of a ledger lacks: who is gone is replaced, and damage is mended in place.

    The newest fragment of an open ledger is left as it is. Exit code 3 if something is left to do.

    With `--give-up` an open ledger is closed before the first entry that nobody can read and that was not confirmed;
    readers get EntryLost of those that are lost before its end. Bookies that are gone are taken to have nothing.

    Example: `tally ledger repair 7 --explain`
    """
    import asyncio

    from tallystick.cli import NOT_WELL, output, repairs

    if give_up:
        return _give_up(ledger, service.resolve(), yes=yes, json=json)

    if explain:
        reports = asyncio.run(repairs.explain(service.resolve(), ledger))
        rows = [{"first": one.first, "last": one.last, "bookie": one.bookie, "state": one.state} for one in reports]
        output.rows(rows, json=json, empty="the ledger has no fragment with an end")
        return 0 if all(one.is_whole for one in reports) else NOT_WELL
    is_repaired, text = asyncio.run(repairs.repair(service.resolve(), ledger))
    output.details({"ledger": ledger, "repaired": is_repaired, "reason": text}, json=json)
    return 0 if is_repaired else NOT_WELL


def _give_up(ledger: int, uri: str, *, yes: bool, json: bool) -> int:
    """Show what is lost, ask, and give it up."""
    import asyncio
    import sys

    from tallystick.cli import NOT_WELL, output, repairs
    from tallystick.errors import UsageError

    loss = asyncio.run(repairs.loss_of(uri, ledger))
    if not loss.is_any or not (yes or sys.stdin.isatty()):
        output.details({**repairs.loss_row(loss), "given_up": False}, json=json)
        return NOT_WELL if loss.is_any else 0
    if not yes:  # to ask while an event loop runs would keep Ctrl-C from ending it
        output.details(repairs.loss_row(loss), json=False)
        try:
            agreed = input(f"Give this up for good in {uri}? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            agreed = False
        if not agreed:
            raise UsageError("nothing was given up", ledger=ledger)
    loss = asyncio.run(repairs.give_up(uri, loss))
    output.details({**repairs.loss_row(loss), "given_up": True}, json=json)
    return 0


@app.command
def delete(
    ledger: LedgerArgument,
    /,
    *,
    yes: Annotated[bool, Parameter(help="Do not ask.")] = False,
    service: MetadataOption = SERVICE,
    password: Password = PASSWORD,
    json: Json = False,
) -> None:
    """Delete a ledger. Its bookies give the space back later.

    One that has a password is deleted only with it: a terminal is asked for it where it is not given.

    Example: `tally ledger delete 7 --yes`
    """
    import asyncio
    import getpass
    import sys

    from tallystick.cli import ledgers, output
    from tallystick.errors import UsageError

    uri, ledger_password = service.resolve(), password.read()
    try:  # to ask while an event loop runs would keep Ctrl-C from ending it
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("deleting cannot be undone: give --yes", ledger=ledger)
            if input(f"Delete ledger {ledger} of {uri} for good? [y/N] ").strip().lower() not in ("y", "yes"):
                raise UsageError("not deleted", ledger=ledger)
        if not ledger_password and sys.stdin.isatty() and asyncio.run(ledgers.has_password(uri, ledger)):
            ledger_password = getpass.getpass(f"Password of ledger {ledger}: ").encode()
    except EOFError:
        raise UsageError("not deleted", ledger=ledger) from None
    asyncio.run(ledgers.delete(uri, ledger, ledger_password))
    if json:
        output.json_line({"ledger": ledger, "deleted": True})
    else:
        print(f"ledger {ledger} deleted")
