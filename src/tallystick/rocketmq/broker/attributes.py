"""The attributes of topics and groups, and how requests change them (``AttributeParser``, ``AttributeUtil``).

A change is ``+name=value`` or ``-name``; several are separated by commas. Refusals have the original's texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.errors import BrokerError
from tallystick.rocketmq.wire.numbers import number_of
from tallystick.rocketmq.wire.values import ResponseCode


@dataclass(frozen=True)
class Attribute:
    """``values`` are those that it may have, None for a number from -1 up. ``fixed``: it is set when the topic is made,
    or never."""

    values: frozenset[str] | None = None
    fixed: bool = False


# Batch queues and compaction are not here: a topic that asked for them would not get what it asked for.
TOPIC: Mapping[str, Attribute] = {
    "queue.type": Attribute(frozenset({"SimpleCQ"}), fixed=True),
    "cleanup.policy": Attribute(frozenset({"DELETE"}), fixed=True),
    "message.type": Attribute(frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"})),
    "reserve.time": Attribute(),
}
GROUP: Mapping[str, Attribute] = {}


def read_changes(text: str | None) -> dict[str, str]:
    """Returns signed names with their values, as the bodies of requests have them. Raises BrokerError."""
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        name, equals, value = part.partition("=")
        if equals and "+" not in name:
            raise _refusal(f"add/alter attribute format is wrong: {name}")
        if not equals and "-" not in name:
            raise _refusal(f"delete attribute format is wrong: {name}")
        if name in changes:
            raise _refusal(f"key duplication: {name}")
        changes[name] = value
    return changes


def apply_changes(
    attributes: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Returns the attributes after the changes. ``current`` is None for a topic that is new. Raises BrokerError."""
    after = dict(current or {})
    names = set()
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        if not name or "+" in name or "-" in name:
            raise _refusal("kv string format wrong.")
        if name in names:
            raise _refusal(f"alter duplication key. key: {name}")
        names.add(name)
        if sign not in ("+", "-"):
            raise _refusal(f"wrong format key: {name}")
        if sign == "-" and current is None:
            raise _refusal(f"only add attribute is supported while creating topic. key: {name}")
        if sign == "-" and name not in after:
            raise _refusal(f"attempt to delete a nonexistent key: {name}")
        _check(attributes, name, value if sign == "+" else None, is_new=current is None)
        if sign == "+":
            after[name] = value
        else:
            del after[name]
    return after


def _check(attributes: Mapping[str, Attribute], name: str, value: str | None, *, is_new: bool) -> None:
    attribute = attributes.get(name)
    if attribute is None:
        raise _refusal(f"unsupported key: {name}")
    if attribute.fixed and not is_new:
        raise _refusal(f"attempt to update an unchangeable attribute. key: {name}")
    if value is not None and not _allows(attribute, value):
        raise _refusal(f"value is not supported by this broker: {name}={value}")


def _allows(attribute: Attribute, value: str) -> bool:
    if attribute.values is not None:
        return value in attribute.values
    number = number_of(value)
    return value == "-1" or (number is not None and number < 2**63)


def _refusal(remark: str) -> BrokerError:
    return BrokerError(remark, response_code=ResponseCode.SYSTEM_ERROR)
