"""A bookie's cookie says which bookie, folders and cluster belong together (``Cookie``).

The same text lies in the coordination service and in a file of each folder; a bookie starts only where all agree.

::

    layout 5   "5" LF CookieFormat as protobuf text; the only one written
    layout 4   "4" LF the same without index folders
    layout 3   "3" LF bookie LF journal folders LF ledger folders LF

Journal folders are joined by commas; ledger and index folders are ``count TAB folder TAB folder …``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf import text_format

from tallystick.bookkeeper.wire.formats_pb2 import CookieFormat
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import InvalidCookie, UsageError

LAYOUT_VERSION = 5


@dataclass(frozen=True)
class Cookie:
    """One cookie. Raises UsageError for folders that the format cannot hold."""

    host: BookieId  # the bookie id; host:port unless configured
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    instance_id: str | None = None  # the cluster's
    index_dirs: tuple[str, ...] | None = None  # None: the indexes are with the ledgers

    def __post_init__(self) -> None:
        for folder in (*self.journal_dirs, *self.ledger_dirs, *(self.index_dirs or ())):
            if not folder or any(sign in folder for sign in ",\t\n"):
                raise UsageError("a cookie cannot name a folder with a comma, tab or line break", folder=folder)

    def differences(self, other: Cookie) -> list[str]:
        """Return the fields in which the two differ, this one's first, for a message; [] if they belong together."""
        mine, others = self._compared(), other._compared()
        return [f"{name}: {mine[name]}, not {others[name]}" for name in mine if mine[name] != others[name]]

    def _compared(self) -> dict[str, object]:
        return {
            "bookie": self.host,
            "journal folders": self.journal_dirs,
            "ledger folders": self.ledger_dirs,
            "index folders": self.ledger_dirs if self.index_dirs is None else self.index_dirs,
            "cluster": self.instance_id,
        }


def encode(cookie: Cookie) -> bytes:
    message = CookieFormat(
        bookieHost=cookie.host,
        journalDir=",".join(cookie.journal_dirs),
        ledgerDirs=_join(cookie.ledger_dirs),
    )
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    if cookie.index_dirs is not None:
        message.indexDirs = _join(cookie.index_dirs)
    return f"{LAYOUT_VERSION}\n{text_format.MessageToString(message, as_utf8=True)}".encode()


def decode(data: bytes, *, where: str = "") -> Cookie:
    """Raises InvalidCookie; ``where`` names the place for its text."""
    try:
        version, _, body = data.decode().partition("\n")
        if version == "3":
            host, journals, ledgers = body.splitlines()[:3]
            return Cookie(host, _split_journals(journals), _split(ledgers))
        if version not in ("4", "5"):
            raise ValueError(f"its layout {version[:20]!r} is not known")
        message = text_format.Parse(body, CookieFormat())
        if not message.IsInitialized():
            raise ValueError("fields are missing")
        return Cookie(
            message.bookieHost,
            _split_journals(message.journalDir),
            _split(message.ledgerDirs),
            message.instanceId if message.HasField("instanceId") else None,
            _split(message.indexDirs) if message.HasField("indexDirs") else None,
        )
    except (ValueError, UsageError, text_format.ParseError) as error:
        raise InvalidCookie(f"a cookie is damaged: {error}", where=where) from error


def _join(folders: Sequence[str]) -> str:
    return "\t".join((str(len(folders)), *folders))


def _split(text: str) -> tuple[str, ...]:
    count, *folders = text.split("\t")
    if count != str(len(folders)):
        raise ValueError(f"it says {count[:20]!r} folders and names {len(folders)}")
    return tuple(folders)


def _split_journals(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
