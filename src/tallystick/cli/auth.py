"""``tally auth``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cyclopts import App

from tallystick.cli import NOT_WELL
from tallystick.cli.options import SERVICE, Json, MetadataOption

if TYPE_CHECKING:
    from tallystick.admin.auth import BookieAuthentication

app = App(name="auth", help="Who still comes without a key, or with an old one.")


@app.command
def status(*, service: MetadataOption = SERVICE, json: Json = False) -> int:
    """Show who came to each bookie since it started, and how: without a key, with an old secret, or refused.

    Example: `tally auth status`
    """
    import asyncio

    from tallystick.admin import auth, cluster
    from tallystick.cli import output

    async def all_bookies() -> list[BookieAuthentication]:
        async with cluster.metadata(service.resolve()) as driver:
            return await auth.authentication(driver)

    bookies = asyncio.run(all_bookies())
    rows = [row for bookie in bookies for row in _rows(bookie)]
    output.rows(rows, json=json, empty="no bookie is registered")
    is_well = all(bookie.mechanisms and bookie.problem is None for bookie in bookies)
    return 0 if is_well and not any(row["amiss"] for row in rows) else NOT_WELL


def _rows(bookie: BookieAuthentication) -> list[dict[str, Any]]:
    takes = ",".join(bookie.mechanisms) or "anybody"
    common = {"bookie": bookie.bookie, "tls": bookie.tls, "takes": takes}
    nobody = {"host": None, "identity": None, "came": 0, "old_secret": 0, "refused": 0, "amiss": bookie.problem or ""}
    return [
        {
            **common,
            "host": row.get("host"),
            "identity": row.get("identity"),
            "came": row.get("came", 0),
            "old_secret": row.get("old secret", 0),
            "refused": row.get("refused", 0),
            "amiss": _amiss(row),
        }
        for row in bookie.rows
    ] or [{**common, **nobody}]


def _amiss(row: dict[str, Any]) -> str:
    """Return what stands in the way of asking everybody for a key, or of taking the old secret away."""
    if row.get("identity") == "anonymous":
        return "no key"
    if row.get("old secret"):
        return "old secret"
    return "refused" if row.get("refused") else ""
