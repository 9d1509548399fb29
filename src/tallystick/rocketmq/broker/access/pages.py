"""The users of a master, by pages, for slaves of ours (``pages.PagedTable``): a key that it revokes counts nowhere.

Only super users get them (``gate``): they hold secrets.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from tallystick.rocketmq.broker.access.table import AccessTable
from tallystick.rocketmq.broker.pages import Page
from tallystick.rocketmq.wire.access import StoredUser

PAGE_USERS = 200
PAGE_ENTRIES = 1000  # and addresses: behind them a page has no other user

_decode = msgspec.json.Decoder(list[StoredUser]).decode


class AccessPages:
    """The pages of all users, in the order in which they came."""

    def __init__(self, table: AccessTable) -> None:
        self._table = table

    @property
    def snapshot(self) -> int:
        return self._table.replacements

    def page(self, start: int) -> Page:
        table = self._table
        index = max(0, start - table.removals)
        users: list[StoredUser] = []
        entry_count = 0
        for user in islice(table.users.values(), index, index + PAGE_USERS):
            users.append(user.stored())
            entry_count += len(user.policies) + user.policies.source_count
            if entry_count >= PAGE_ENTRIES:
                break
        index += len(users)
        return Page(msgspec.json.encode(users), index + table.removals if index < len(table.users) else None)


def read_page(body: bytes | bytearray | memoryview) -> list[StoredUser]:
    """Read a page. Raises msgspec.DecodeError."""
    return _decode(body)
