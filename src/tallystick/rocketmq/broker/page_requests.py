"""Requests for pages of tables, from slaves of ours: see ``pages``."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import OK, refusal
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.headers import TablePageHeader, TablePageResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode


class PageRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._instance, self._tables = parts.identity.instance, parts.tables_by_name
        self.handlers: Mapping[int, Handler] = {RequestCode.GET_TABLE_PAGE: self._page}

    def _page(self, link: Link, command: Command, reply: Reply) -> Command:
        header = TablePageHeader.of(command)
        table = self._tables.get(header.table)
        if table is None:
            raise refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"no table {header.table} has pages here")
        snapshot = f"{self._instance}:{table.snapshot}"
        page = table.page(max(0, header.start) if header.snapshot == snapshot else 0)
        return command.response(OK, None, TablePageResponse(snapshot=snapshot, next=page.next).to_fields(), page.body)
