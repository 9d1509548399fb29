"""Who comes to the bookies and brokers of a cluster, and by what they show who they are.

A bookie's own page says it; a broker says it to who signs, and may see its cluster.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from tallystick.admin.brokers import BrokerProcess, Operator, list_processes
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.wire.registration import TLS_EXTENSION, auth_offers
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import TallyError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.access import AuthenticationInfo
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.tasks import together

PAGE = "/authentication"
ASK_S = 5.0
MAX_PAGE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class BookieAuthentication:
    """What one bookie takes, and who came since it started: a row for each host and identity."""

    bookie: BookieId
    mechanisms: tuple[str, ...]
    tls: bool
    rows: tuple[dict[str, Any], ...] = ()
    problem: str | None = None  # why nobody knows who came


async def authentication(driver: MetadataDriver) -> list[BookieAuthentication]:
    """Ask all registered bookies, some at once. Raises MetadataError."""
    bookies = await driver.bookies()
    infos = {**bookies.read_only, **bookies.writable}
    return await together(_of(bookie, infos[bookie]) for bookie in sorted(infos))


@dataclass(frozen=True)
class BrokerAuthentication:
    """What one broker says, or why nobody knows who came."""

    process: BrokerProcess
    info: AuthenticationInfo | None
    problem: str | None = None


async def broker_authentication(operator: Operator) -> list[BrokerAuthentication]:
    """Ask all registered brokers, some at once. Raises as ``Operator.ask_name_server``."""
    return await together(_of_broker(operator, each) for each in await list_processes(operator))


async def _of_broker(operator: Operator, process: BrokerProcess) -> BrokerAuthentication:
    try:
        response = await operator.ask(process.address, RequestCode.GET_AUTHENTICATION)
        return BrokerAuthentication(process, dialect.read_as(bytes(response.body), AuthenticationInfo))
    except TallyError as error:  # an original, too, which does not know the request
        return BrokerAuthentication(process, None, error.message)


async def _of(bookie: BookieId, info: BookieInfo) -> BookieAuthentication:
    tls = any(TLS_EXTENSION in endpoint.extensions for endpoint in info.endpoints)
    page = next(((one.host, one.port) for one in info.endpoints if one.protocol == "http"), None)
    rows, problem = list[dict[str, Any]](), None
    if page is None:
        problem = "it has no page that says who came: httpServerEnabled=true"
    else:
        try:
            async with asyncio.timeout(ASK_S):
                rows = await _rows(*page)
        except (OSError, ValueError) as error:  # a time-out is an OSError, too
            problem = str(error) or type(error).__name__
    return BookieAuthentication(bookie, auth_offers(info), tls, tuple(rows), problem)


async def _rows(host: str, port: int) -> list[dict[str, Any]]:
    """Raises OSError; ValueError for what is no such page."""
    reader, writer = await asyncio.open_connection(host, port, limit=MAX_PAGE_BYTES)
    try:
        writer.write(f"GET {PAGE} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] != [b"200"]:
            raise ValueError("its page says nothing of who came: only one on loopback does")
        body = bytearray()
        while part := await reader.read(MAX_PAGE_BYTES + 1 - len(body)):
            body += part
        if len(body) > MAX_PAGE_BYTES:
            raise ValueError("its page is longer than any that says who came")
        rows = json.loads(body)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("its page is not of this form")
        return rows
    except RecursionError:
        raise ValueError("its page is not of this form") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ValueError("its page ended too soon") from error
    finally:
        writer.close()
