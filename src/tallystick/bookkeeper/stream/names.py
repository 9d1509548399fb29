"""Where streams and cursors are in the metadata: Pulsar's nodes, and ours beside them.

::

    <base>/managed-ledgers/<tenant>/<namespace>/persistent/<topic>            ManagedLedgerInfo
    <base>/managed-ledgers/<tenant>/<namespace>/persistent/<topic>/<cursor>   ManagedCursorInfo
    <base>/tallystick/owners/<stream>             a lease: the owner of a stream, as long as its session lives
    <base>/tallystick/owners/<stream>,<cursor>    the same of a cursor
    <base>/tallystick/going/<stream>/<ledger>     a ledger that was made for the stream, or is to be deleted
    <base>/tallystick/going/<stream>,<cursor>/<ledger>    a ledger that was made for a cursor

``base`` is what is above the root of the ledgers: "" for ``/ledgers``. All children of a stream's node are cursors to
Pulsar, so nothing of ours is below it. In our nodes a stream is one part of a path: ``/`` is written ``%2F``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, unquote_plus

from tallystick.bookkeeper.metadata.store import parent_of
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import UsageError
from tallystick.runtime.arguments import text

LONGEST_PART = 255

_PART = re.compile(r"[^/\0\x01-\x1f\x7f]+")
_BROKER_PART = re.compile(r"[-=:.\w]+", re.ASCII)  # of a tenant and a namespace; a topic may have any signs


def stream_name(name: str) -> str:
    """Returns the name as it is in the metadata. Raises UsageError for what is no name.

    A name is ``tenant/namespace/persistent/topic``, or Pulsar's ``persistent://tenant/namespace/topic``.
    """
    text(name, "the name of a stream")
    if name.startswith("persistent://"):
        tenant, _, rest = name.removeprefix("persistent://").partition("/")
        namespace, _, topic = rest.partition("/")
        parts = [tenant, namespace, "persistent", encoded(topic)]
    else:
        parts = name.split("/")
    if len(parts) != 4 or parts[2] != "persistent" or not all(map(_is_part, parts)):
        raise UsageError(
            "the name of a stream is tenant/namespace/persistent/topic, or persistent://tenant/namespace/topic; no "
            f"part is empty, '.' or '..', or has control characters or more than {LONGEST_PART} characters, and in the "
            "first form special characters are written as in a URL: my%2Ftopic",
            name=name,
        )
    return "/".join(parts)


def broker_stream_name(name: str) -> str:
    """Returns the name as ``stream_name`` does. Raises as that, and as ``require_broker_name``."""
    written = stream_name(name)
    require_broker_name(written)
    return written


def require_broker_name(stream: str) -> None:
    """Raises UsageError where Pulsar refuses the tenant or namespace of a stream, or looks for its topic elsewhere."""
    tenant, namespace, _, topic = stream.split("/")
    if not (_BROKER_PART.fullmatch(tenant) and _BROKER_PART.fullmatch(namespace)):
        raise UsageError(
            "a Pulsar broker takes tenants and namespaces of ASCII letters, digits and any of _ - = : . only",
            name=stream,
        )
    if encoded(decoded(topic)) != topic:
        raise UsageError(
            "a Pulsar broker finds no stream of this name: its topics are written as in a URL",
            name=stream,
            would_be=f"{tenant}/{namespace}/persistent/{encoded(decoded(topic))}",
        )


def cursor_name(name: str) -> str:
    """Returns the name as it is in the metadata: Pulsar's subscription, written as in a URL. Raises UsageError."""
    written = encoded(text(name, "the name of a cursor"))
    if not _is_part(written):
        raise UsageError(
            f"the name of a cursor is not empty, '.' or '..', and has at most {LONGEST_PART} characters as it is "
            "written in a URL",
            name=name,
        )
    return written


def encoded(part: str) -> str:
    """Returns a topic or a subscription as Pulsar has it in paths, which is as ``java.net.URLEncoder`` writes it."""
    return quote_plus(part, safe="*").replace("~", "%7E")


def decoded(part: str) -> str:
    """Returns a topic or a subscription as programs name it, of a part of a path."""
    return unquote_plus(part)


def _is_part(part: str) -> bool:
    return part not in (".", "..") and len(part) <= LONGEST_PART and _PART.fullmatch(part) is not None


@dataclass(frozen=True)
class StreamPaths:
    """The paths of all streams of one cluster, whose ledgers are below ``root``."""

    root: str

    @property
    def streams(self) -> str:
        return f"{parent_of(self.root)}/managed-ledgers"

    def stream(self, stream: str) -> str:
        return f"{self.streams}/{stream}"

    def cursor(self, stream: str, cursor: str) -> str:
        return f"{self.stream(stream)}/{cursor}"

    def owner(self, stream: str, cursor: str | None = None) -> str:
        """Returns where the lease of a stream's owner is, or of a cursor's."""
        return f"{parent_of(self.root)}/tallystick/owners/{_one_part(stream, cursor)}"

    def going(self, stream: str, ledger: LedgerId | None = None, *, cursor: str | None = None) -> str:
        """Returns where the notes of a stream are, or those of the ledgers that are made for one of its cursors; or the
        note of one ledger."""
        folder = f"{parent_of(self.root)}/tallystick/going/{_one_part(stream, cursor)}"
        return folder if ledger is None else f"{folder}/{ledger}"


def _one_part(stream: str, cursor: str | None) -> str:
    return quote(stream, safe="") + ("" if cursor is None else f",{quote(cursor, safe='')}")
