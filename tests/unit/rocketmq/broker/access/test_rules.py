from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.access import rules
from tallystick.rocketmq.broker.access.rules import Action, Kind, Need, Policies, read_policies, read_resource
from tallystick.rocketmq.wire.access import EntryInfo, PolicyInfo

HOST = "10.1.2.3"


def policies(*entries: tuple[str, str, str], default: tuple[tuple[str, str, str], ...] = ()) -> Policies:
    """Entries of resource, actions and decision."""

    def infos(some: tuple[tuple[str, str, str], ...]) -> tuple[EntryInfo, ...]:
        return tuple(
            EntryInfo(resource, tuple(actions.split(",")), None, decision) for resource, actions, decision in some
        )

    parts = [PolicyInfo(name, infos(some)) for name, some in (("Custom", entries), ("Default", default)) if some]
    return read_policies(parts)


def pub(topic: str) -> Need:
    return Need(Kind.TOPIC, topic, (Action.PUB,))


@pytest.mark.parametrize(
    ("entries", "topic", "allowed"),
    [
        ((), "T", False),
        ((("Topic:T", "Pub", "Allow"),), "T", True),
        ((("Topic:T", "Pub", "Allow"),), "T2", False),
        ((("Topic:T", "Sub", "Allow"),), "T", False),
        ((("Topic:T", "All", "Allow"),), "T", True),
        ((("Group:T", "Pub", "Allow"),), "T", False),
        ((("Topic:*", "Pub", "Allow"), ("Topic:T*", "Pub", "Deny")), "T", False),
        ((("Topic:*", "Pub", "Deny"), ("Topic:T", "Pub", "Allow")), "T", True),
        ((("Topic:T*", "Pub", "Deny"), ("Topic:Te*", "Pub", "Allow")), "Test", True),
        ((("Topic:T*", "Pub", "Allow"), ("Topic:Te*", "Pub", "Deny")), "Test", False),
        ((("*", "Pub", "Deny"), ("Topic:*", "Pub", "Allow")), "T", True),
        ((("*", "Pub", "Allow"), ("Topic:*", "Pub", "Deny")), "T", False),
    ],
)
def test_the_most_exact_entry_decides(entries: tuple[tuple[str, str, str], ...], topic: str, allowed: bool) -> None:
    decided = policies(*entries).allows(pub(topic), HOST) if entries else Policies().allows(pub(topic), HOST)
    assert decided is allowed


def test_the_default_policy_counts_where_no_other_entry_matches() -> None:
    both = policies(("Topic:T", "Pub", "Deny"), default=(("Topic:*", "Pub", "Allow"),))
    assert not both.allows(pub("T"), HOST) and both.allows(pub("U"), HOST)


def test_an_address_is_compared_with_addresses_and_networks() -> None:
    info = EntryInfo("Topic:T", ("Pub",), ("10.1.0.0/16", "::1"), "Allow")
    some = read_policies([PolicyInfo(None, (info,))])
    for host, allowed in (("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("::1", True), ("10.2.0.1", False)):
        assert some.allows(pub("T"), host) is allowed
    denied = read_policies([PolicyInfo(None, (EntryInfo("Topic:T", ("Pub",), ("10.1.0.0/16",), "Deny"),)),
                            PolicyInfo("Default", (EntryInfo("*", ("All",), None, "Allow"),))])  # fmt: skip
    assert denied.allows(pub("T"), "10.2.0.1") and not denied.allows(pub("T"), "10.1.9.9")
    assert not some.allows(pub("T"), "unknown") and not denied.allows(pub("T"), "unknown")


def test_an_entry_takes_the_place_of_one_with_the_same_resource() -> None:
    some = policies(("Topic:T", "Pub,Sub", "Allow"), ("Topic:U", "Pub", "Allow"))
    changed = some.updated(policies(("Topic:T", "Sub", "Allow")))
    assert len(changed) == 2 and not changed.allows(pub("T"), HOST) and changed.allows(pub("U"), HOST)
    assert len(changed.without("Default", read_resource("Topic:T"))) == 2
    assert [str(entry.resource) for entry in changed.without("Custom", read_resource("topic:T")).custom] == ["Topic:U"]


@pytest.mark.parametrize(
    "info",
    [
        EntryInfo(None, ("Pub",), None, "Allow"),
        EntryInfo("Topik:T", ("Pub",), None, "Allow"),
        EntryInfo("Topic:", ("Pub",), None, "Allow"),
        EntryInfo("Topic:" + "t" * 300, ("Pub",), None, "Allow"),
        EntryInfo("Topic:T", (), None, "Allow"),
        EntryInfo("Topic:T", ("Pub", "Sbu"), None, "Deny"),
        EntryInfo("Topic:T", ("Any",), None, "Allow"),
        EntryInfo("Topic:T", ("Pub",), None, "Alow"),
        EntryInfo("Topic:T", ("Pub",), ("10.0.0.300",), "Allow"),
        EntryInfo("Topic:T", ("Pub",), ("10.0.0.1",) * 100, "Allow"),
    ],
)
@pytest.mark.rule("N2")
def test_n2_an_entry_with_something_unknown_is_refused_as_a_whole(info: EntryInfo) -> None:
    """The original leaves an unknown action out: with a decision to deny, one thing less is denied."""
    with pytest.raises(UsageError):
        read_policies([PolicyInfo("Custom", (info,))])


def test_the_entries_of_a_user_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_ENTRIES", 2)
    some = policies(("Topic:A", "Pub", "Allow"), ("Topic:B", "Pub", "Allow"))
    with pytest.raises(UsageError, match="at most 2 entries"):
        some.updated(policies(("Topic:C", "Pub", "Allow")))


def test_the_addresses_of_all_entries_of_a_user_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def infos(first: int, count: int) -> list[PolicyInfo]:
        entries = (EntryInfo(f"Topic:t{number}", ("Pub",), (HOST, HOST), "Allow") for number in range(first, count))
        return [PolicyInfo("Custom", tuple(entries))]

    monkeypatch.setattr(rules, "MAX_USER_SOURCES", 8)
    four = read_policies(infos(0, 4))
    assert four.source_count == 8
    with pytest.raises(UsageError, match="at most 8 source ips"):
        four.updated(read_policies(infos(4, 5)))
    monkeypatch.setattr(rules, "_read_entry", None)  # none is read
    with pytest.raises(UsageError, match="at most 8 source ips"):
        read_policies(infos(0, 5))
