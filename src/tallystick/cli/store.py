"""``tally store``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tallystick.cli.options import PATH, Json, pairs

if TYPE_CHECKING:
    from tallystick.rocketmq.store.check import Finding

app = App(name="store", help="Check the files of a broker.")


@app.command
def check(
    directory: Annotated[str, PATH, Parameter(help="A broker's storePathRootDir.")],
    /,
    *,
    set_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            help="A size that the files do not tell: maxHashSlotNum=N, maxIndexNum=N; where a first file was cut, also "
            "mappedFileSizeCommitLog=N, mappedFileSizeConsumeQueue=N. Repeatable.",
        ),
    ] = (),
    json: Json = False,
) -> int:
    """Check every record, queue unit and index entry of a store, ours or the original's. Writes nothing.

    Exit code 1 when something is wrong. While a broker uses the store, its end may look damaged and is not.

    Example: `tally store check /srv/broker-a`
    """
    from tallystick.admin import stores
    from tallystick.cli import output

    report = stores.check(directory, pairs("--set", "key=value", set_))
    output.rows([_row(finding) for finding in report.findings], json=json, empty="every record, unit and entry is good")
    totals = {
        "first": report.first,
        "end": report.end,
        "records": report.records,
        "queues": report.queues,
        "units": report.units,
        "index_entries": report.entries,
        "problems": report.problems,
    }
    output.details(totals, json=json)
    return 1 if report.problems else 0


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "problem": finding.problem.value,
        "path": finding.path,
        "position": finding.position,
        "detail": finding.detail or None,
    }
