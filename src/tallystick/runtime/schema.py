"""Which keys a server's file of settings may have: one schema a server, made of parts that live where the settings do.

A part names the keys of one class of settings. A schema reads a file with them, refuses by name what would make the
server weaker than its operator believes, and names all other keys that are not its own: none is passed over in silence.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from tallystick.errors import UsageError
from tallystick.runtime import keyfile

Settings = TypeVar("Settings")


def plain(value: Any) -> str:
    """The text that a file would have for a value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ";".join(map(plain, value))
    if isinstance(value, Enum):
        return str(value.value)
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Key:
    """A key of the file: the field it sets, how its text is read, and how the field is written as text again."""

    field: str
    parse: Callable[[str, str], Any]
    text: Callable[[Any], str] = plain


def milliseconds(field: str) -> Key:
    """A key in milliseconds for a field in seconds."""
    return Key(field, keyfile.seconds, lambda seconds: str(round(seconds * 1000)))


def exporter(field: str) -> Key:
    """The key that says whether ``/metrics`` is served."""
    return Key(field, keyfile.prometheus, lambda is_served: "PROM" if is_served else "DISABLE")


@dataclass(frozen=True)
class Part(Generic[Settings]):
    """The keys of one class of settings. ``complete`` may set fields that are not given by those that are."""

    factory: Callable[..., Settings]
    keys: Mapping[str, Key]
    complete: Callable[[dict[str, Any]], None] | None = None

    def build(self, texts: Mapping[str, str], **others: Any) -> Settings:
        """The settings of the keys given, and of ``others`` by field. Raises UsageError, which begins with a key."""
        fields = self._parse(texts)
        if self.complete is not None:
            self.complete(fields)
        return self._build(partial(self.factory, **others), fields)

    def change(self, settings: Settings, texts: Mapping[str, str]) -> Settings:
        """The same settings with other values for the keys given. Raises UsageError, which begins with a key."""
        return self._build(partial(replace, settings), self._parse(texts))  # type: ignore[type-var]  # a dataclass

    def parse(self, name: str, text: str) -> tuple[str, Any]:
        """The field that a key sets, and its value. Raises UsageError."""
        key = self.keys[name]
        return key.field, key.parse(name, text)

    def texts(self, settings: Settings) -> dict[str, str]:
        """The keys and texts that would give these settings; a field that is None has none."""
        values = ((name, key, getattr(settings, key.field)) for name, key in self.keys.items())
        return {name: key.text(value) for name, key, value in values if value is not None}

    def _parse(self, texts: Mapping[str, str]) -> dict[str, Any]:
        return dict(self.parse(name, texts[name]) for name in self.keys if name in texts)

    def _build(self, factory: Callable[..., Settings], fields: Mapping[str, Any]) -> Settings:
        try:
            return factory(**fields)
        except UsageError as error:
            subject, _, rest = error.message.partition(" ")
            for name, key in self.keys.items():
                if key.field == subject:
                    raise UsageError(f"{name} {rest}", **error.fields) from error
            raise


@dataclass(frozen=True)
class Fixed:
    """A key of which one value alone is supported, and why no other is."""

    value: bool
    why: str


@dataclass(frozen=True)
class LoadedSettings(Generic[Settings]):
    """Settings, and the keys of the file that change nothing."""

    settings: Settings
    ignored: tuple[str, ...]


@dataclass(frozen=True)
class Schema(Generic[Settings]):
    """All keys of one server. ``table`` is the name of its table in a TOML file.

    ``parts`` are by the field of the whole that holds their settings. ``security`` matches the keys of what the server
    ``lacks`` (authentication, TLS): of those that are not among its own, any value but ``false`` is refused.
    ``check`` refuses what it finds wrong in the keys ``checked``, which set no field.
    """

    table: str
    whole: Part[Settings]
    security: re.Pattern[str]
    lacks: str
    parts: Mapping[str, Part[Any]] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    fixed: Mapping[str, Fixed] = field(default_factory=dict)
    checked: tuple[str, ...] = ()
    check: Callable[[Mapping[str, str]], None] | None = None

    @property
    def keys(self) -> Mapping[str, Key]:
        """The keys that set a field, of all parts."""
        return {name: key for part in (self.whole, *self.parts.values()) for name, key in part.keys.items()}

    def load(self, path: str | None, overrides: Mapping[str, str]) -> LoadedSettings[Settings]:
        """Read the file, if any, with ``overrides`` (``--set``) on top. Raises UsageError, which names the key."""
        return self.read(self.values(path, overrides))

    def values(self, path: str | None, overrides: Mapping[str, str]) -> dict[str, str]:
        """The keys and texts of the file, if any, with ``overrides`` on top. Raises UsageError."""
        return {**({} if path is None else keyfile.read_keys(path, self.table)), **overrides}

    def read(self, values: Mapping[str, str]) -> LoadedSettings[Settings]:
        """Settings from keys and their text; an empty value counts as absent. Raises UsageError, which names a key."""
        texts = keyfile.without_empty(values)
        self._refuse(texts)
        known_keys = {*self.keys, *self.fixed, *self.checked}
        require(self._missing_keys(texts), texts, known_keys)
        parts = {name: part.build(texts) for name, part in self.parts.items()}
        ignored = unknown((name for name in texts if not self.security.fullmatch(name)), known_keys)
        return LoadedSettings(self.whole.build(texts, **parts), ignored)

    def texts(self, settings: Settings) -> dict[str, str]:
        """The keys and texts of a file that would give these settings."""
        texts_by_part = {name: part.texts(getattr(settings, name)) for name, part in self.parts.items()}
        return {
            **self.whole.texts(settings),
            **{key: text for part in texts_by_part.values() for key, text in part.items()},
        }

    def text(self, settings: Settings) -> str:
        """A file of properties that would give these settings, its lines in the order of their keys."""
        return "".join(f"{name}={text}\n" for name, text in sorted(self.texts(settings).items()))

    def _refuse(self, texts: Mapping[str, str]) -> None:
        for name, fixed in self.fixed.items():
            if name in texts and keyfile.flag(name, texts[name]) is not fixed.value:
                raise UsageError(f"{name}={plain(not fixed.value)} is not supported: {fixed.why}")
        for name, value in texts.items():
            is_known = name in self.keys or name in self.checked
            if self.security.fullmatch(name) and not is_known and value.lower() != "false":
                raise UsageError(f"{name} is not supported: {self.lacks}")
        if self.check is not None:
            self.check(texts)

    def _missing_keys(self, texts: Mapping[str, str]) -> Iterable[str]:
        """The keys that are needed and have no value, by another key of the same field neither."""
        keys = self.keys
        fields = {keys[name].field for name in texts if name in keys}
        return (name for name in self.needed if keys[name].field not in fields)


def unknown(names: Iterable[str], known_keys: Collection[str]) -> tuple[str, ...]:
    """The keys that are none of ``known_keys``, each with the one it is perhaps a misspelling of."""
    return tuple(_suggest(name, known_keys) for name in sorted(names) if name not in known_keys)


def require(missing_keys: Iterable[str], present_keys: Collection[str], known_keys: Collection[str]) -> None:
    """Raises UsageError for the first of ``missing_keys``, and names what may be a misspelling of it."""
    for name in missing_keys:
        near = difflib.get_close_matches(
            name.lower(), {key.lower() for key in present_keys if key not in known_keys}, n=1
        )
        spelled = next((f" (there is {key}: is it that?)" for key in present_keys if key.lower() in near), "")
        raise UsageError(
            f"{name} is missing{spelled}: set it in the file that --config names, or with --set {name}=..."
        )


def _suggest(name: str, known_keys: Collection[str]) -> str:
    folded = {key.lower(): key for key in known_keys}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.8)
    return f"{name} (did you mean {folded[near[0]]}?)" if near else name
