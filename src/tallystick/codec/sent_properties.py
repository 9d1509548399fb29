"""Properties of a message that was sent, from a header's text to the stored bytes (``name \\x01 value \\x02`` …)."""

from __future__ import annotations

from tallystick.codec.implementation import with_twin

UNIQ_KEY_IS, WAIT_IS = "UNIQ_KEY\x01", "WAIT\x01"
_WAIT_TRUE = f"\x02{WAIT_IS}true\x02"


@with_twin
def usual_properties(properties: str, brokers: bytes) -> tuple[bytes, str, bool] | None:
    """Returns the bytes to store, which end with the ``brokers``; the client's id; and whether the response waits for
    disk and slaves.

    Returns None if there is no id, or if a property may be there that means something to a broker.
    """
    if properties and properties[-1] != "\x02":
        properties += "\x02"
    if has_broker_properties(properties):
        return None
    unique_key = value_of(properties, UNIQ_KEY_IS)
    if not unique_key:
        return None
    return properties.encode() + brokers, unique_key, waits_for_store(properties)


def value_of(properties: str, name: str) -> str | None:
    """Returns the value of one property without reading the others; ``name`` ends with the separator."""
    at = properties.find(name)
    while at > 0 and properties[at - 1] != "\x02":
        at = properties.find(name, at + 1)
    if at < 0:
        return None
    start = at + len(name)
    end = properties.find("\x02", start)
    return properties[start:end] if end >= 0 else properties[start:]


def waits_for_store(properties: str) -> bool:
    """Whether the response waits for disk and slaves: it does, unless the property WAIT has a value other than true."""
    if _WAIT_TRUE in properties:  # what clients write
        return True
    value = value_of(properties, WAIT_IS)
    return value is None or value == "true" or value.lower() == "true"


def has_broker_properties(properties: str) -> bool:
    """Whether a property may be there that means something to a broker. Nine searches cost less than one parse."""
    return (
        "DELAY\x01" in properties
        or "TRAN_MSG\x01" in properties
        or "TIMER_DEL" in properties
        or "POP_CK\x01" in properties
        or "INNER_NUM\x01" in properties
        or "CLUSTER\x01" in properties
        or "MSG_REGION\x01" in properties
        or "TRACE_ON\x01" in properties
        or "TALLY_SINK\x01" in properties
    )
