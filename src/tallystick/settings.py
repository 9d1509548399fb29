"""Files of settings: our TOML, or the original's ``bk_server.conf``. One vocabulary, the original's key names.

::

    [bookie]                                     metadataServiceUri=zk+hierarchical://127.0.0.1:2181/ledgers
    metadataServiceUri = "sqlite:///srv/m.db"    bookiePort=3181
    bookiePort = 3181                            journalDirectory=/srv/journal
    …                                            …

A key that changes what a bookie promises (unsynced journals, authentication, TLS, several folders) and is not supported
is refused by name: a bookie that ignored it would be a weaker one than its operator believes. All other keys that are
not ours are named in one warning.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.errors import UsageError

TABLE = "bookie"

_LINE = re.compile(r"([^=:\s]+)\s*[=:\s]\s*(.*)")


@dataclass(frozen=True)
class Key:
    """A key of the file: the field it sets, and how its text is read."""

    field: str
    parse: Callable[[str, str], Any]


def _text(key: str, value: str) -> str:
    return value


def _integer(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{key} is a whole number", value=value) from None


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{key} is a number", value=value) from None


def _seconds(key: str, value: str) -> float:
    return _integer(key, value) / 1000


def _flag(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise UsageError(f"{key} is true or false", value=value)
    return value.lower() == "true"


def _one_folder(key: str, value: str) -> str:
    folders = [folder.strip() for folder in value.split(",") if folder.strip()]
    if len(folders) != 1:
        raise UsageError(f"{key} names {len(folders)} folders; a bookie of ours has exactly one", value=value)
    return folders[0].rstrip("/") or "/"


KEYS: Mapping[str, Key] = {
    "metadataServiceUri": Key("metadata_uri", _text),
    "zkTimeout": Key("session_timeout_s", _seconds),
    "bookiePort": Key("port", _integer),
    "bookieId": Key("bookie_id", _text),
    "advertisedAddress": Key("advertised_host", _text),
    "listeningInterface": Key("interface", _text),
    "allowLoopback": Key("allow_loopback", _flag),
    "journalDirectory": Key("journal_dir", _one_folder),
    "journalDirectories": Key("journal_dir", _one_folder),  # later in the table: wins, as in the original
    "ledgerDirectories": Key("ledger_dir", _one_folder),
    "nettyMaxFrameSizeBytes": Key("max_frame_bytes", _integer),
    "maxBatchReadSize": Key("max_batch_read_bytes", _integer),
    "gcWaitTime": Key("gc_wait_s", _seconds),
    "diskUsageThreshold": Key("disk_usage_threshold", _number),
    "httpServerEnabled": Key("http_enabled", _flag),
    "httpServerHost": Key("http_host", _text),
    "httpServerPort": Key("http_port", _integer),
}
NEEDED = ("metadataServiceUri", "journalDirectory", "ledgerDirectories")
MUST_BE_TRUE: Mapping[str, str] = {
    "journalSyncData": "an entry is acknowledged only when it is on the disk",
    "journalWriteData": "without a journal acknowledged entries and fences would be lost with the power",
}
SECURITY = re.compile(r"tls.*|sasl.*|.*[aA]uth(Provider|orized|entication).*|permittedStartupUsers|zkEnableSecurity")


@dataclass(frozen=True)
class Loaded:
    """Settings, and the keys of the file that change nothing."""

    bookie: BookieSettings
    ignored: tuple[str, ...]


def load(path: str | None, overrides: Mapping[str, str]) -> Loaded:
    """The file, if any, with ``overrides`` (``--set``) on top. Raises UsageError, which names the key."""
    values: dict[str, str] = {}
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the configuration: {error}") from error
        values = parse_toml(text) if _is_toml(path, text) else parse_properties(text)
    return bookie_settings({**values, **overrides})


def bookie_settings(values: Mapping[str, str]) -> Loaded:
    """Settings from keys and their text. An empty value counts as absent."""
    given = {key: value.strip() for key, value in values.items() if value.strip()}
    _refuse(given)
    fields = {key.field: key.parse(name, given[name]) for name, key in KEYS.items() if name in given}
    for name in NEEDED:
        if KEYS[name].field not in fields:
            raise UsageError(f"{name} is missing in the configuration")
    known = {*KEYS, *MUST_BE_TRUE}
    ignored = sorted(name for name in given if name not in known and not SECURITY.fullmatch(name))
    return Loaded(BookieSettings(**fields), tuple(ignored))


def _refuse(given: Mapping[str, str]) -> None:
    for name, why in MUST_BE_TRUE.items():
        if name in given and not _flag(name, given[name]):
            raise UsageError(f"{name}=false is not supported: {why}")
    for name, value in given.items():
        if SECURITY.fullmatch(name) and value.lower() != "false":
            raise UsageError(f"{name} is not supported: this bookie has neither authentication nor TLS")


def _is_toml(path: str, text: str) -> bool:
    if path.endswith(".toml"):
        return True
    return (
        not path.endswith((".conf", ".properties")) and re.search(rf"^\s*\[{TABLE}\]", text, re.MULTILINE) is not None
    )


def parse_toml(text: str) -> dict[str, str]:
    """The keys of the table ``[bookie]`` as text. Raises UsageError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration is not TOML: {error}") from error
    table = document.pop(TABLE, None)
    if not isinstance(table, dict):
        raise UsageError(f"the configuration has no table [{TABLE}]")
    if document:
        raise UsageError(f"the configuration has more than the table [{TABLE}]", found=",".join(document))
    return {key: _as_text(value) for key, value in table.items()}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_as_text, value))
    return str(value)


def parse_properties(text: str) -> dict[str, str]:
    """``key=value`` lines as Java reads them: # and ! begin comments, a backslash at the end joins the next line."""
    values: dict[str, str] = {}
    logical = ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        logical += line.strip()
        if not logical or logical[0] in "#!":
            logical = ""
            continue
        if logical.endswith("\\"):
            logical = logical[:-1]
            continue
        found = _LINE.fullmatch(logical) or re.fullmatch(r"(\S+)()", logical)
        if found is None:
            raise UsageError("a line of the configuration is not key=value", line=number)
        values[found[1]] = found[2].strip()
        logical = ""
    return values
