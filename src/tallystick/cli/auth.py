"""``tally auth``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tallystick.cli import NOT_WELL
from tallystick.cli.options import NAME_SERVERS, SERVICE, Json, MetadataOption, NameServersOption

if TYPE_CHECKING:
    from tallystick.admin.auth import BookieAuthentication, BrokerAuthentication

app = App(name="auth", help="Who still comes without a key, or with an old one.")


@app.command
def status(
    *,
    brokers: Annotated[bool, Parameter(help="Ask the brokers that a name server knows, and not the bookies.")] = False,
    service: MetadataOption = SERVICE,
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> int:
    """Show who came to each bookie since it started, and how: without a key, with an old secret, or refused.

    With --brokers: to each broker, where requests are counted and not connections. The command signs as a user who may
    see the cluster (Cluster:name, Get): TALLY_BROKER_CREDENTIALS names a file with accessKey= and secretKey=.

    Example: `tally auth status`
    """
    import asyncio

    from tallystick.cli import output

    rows = asyncio.run(_of_brokers(servers.resolve()) if brokers else _of_bookies(service.resolve()))
    output.rows(rows, json=json, empty=f"no {'broker' if brokers else 'bookie'} is registered")
    return NOT_WELL if any(row["amiss"] or row["takes"] == _ANYBODY for row in rows) else 0


_ANYBODY = "anybody"
_ASKS_NOBODY = "it asks nobody who he is"
_NOBODY: dict[str, Any] = {"host": None, "identity": None, "came": 0, "old_secret": 0, "refused": 0}


async def _of_bookies(uri: str) -> list[dict[str, Any]]:
    from tallystick.admin import auth, cluster

    async with cluster.metadata(uri) as driver:
        bookies = await auth.authentication(driver)
    return [row for bookie in bookies for row in _bookie_rows(bookie)]


async def _of_brokers(name_servers: str) -> list[dict[str, Any]]:
    from tallystick.admin import auth, brokers

    async with brokers.operator(name_servers) as operator:
        reports = await auth.broker_authentication(operator)
    return [row for broker in reports for row in _broker_rows(broker)]


def _bookie_rows(bookie: BookieAuthentication) -> list[dict[str, Any]]:
    takes = ",".join(bookie.mechanisms) or _ANYBODY
    common = {"bookie": bookie.bookie, "tls": bookie.tls, "takes": takes}
    return [
        {
            **common,
            **_of_peer(
                row.get("host"), row.get("identity"), row.get("came"), row.get("old secret"), row.get("refused")
            ),
        }
        for row in bookie.rows
    ] or [{**common, **_NOBODY, "amiss": bookie.problem or (_ASKS_NOBODY if takes == _ANYBODY else "")}]


def _broker_rows(broker: BrokerAuthentication) -> list[dict[str, Any]]:
    info, who = broker.info, {"broker": broker.process.id}
    if info is None:
        return [{**who, "tls": None, "takes": None, **_NOBODY, "amiss": broker.problem or ""}]
    takes = "signatures" if info.is_required else "both" if info.is_asked else _ANYBODY
    common = {**who, "tls": info.tls, "takes": takes}
    return [
        {**common, **_of_peer(peer.host, peer.identity, peer.came, peer.old_secret, peer.refused)}
        for peer in info.peers
    ] or [{**common, **_NOBODY, "amiss": _ASKS_NOBODY if takes == _ANYBODY else ""}]


def _of_peer(
    host: str | None, identity: str | None, came: int | None, old_secret: int | None, refused: int | None
) -> dict[str, Any]:
    """Return a row. ``amiss``: what stands in the way of asking all for a key, or of taking the old secret away."""
    amiss = "no key" if identity == "anonymous" else "old secret" if old_secret else "refused" if refused else ""
    counts = {"came": came or 0, "old_secret": old_secret or 0, "refused": refused or 0}
    return {"host": host, "identity": identity, **counts, "amiss": amiss}
