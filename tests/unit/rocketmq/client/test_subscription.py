from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.client.subscription import TagFilter


@pytest.mark.parametrize("expression", ["*", "", "  "])
def test_everything(expression: str) -> None:
    wanted = TagFilter.parse(expression)
    assert wanted.matches(None)
    assert wanted.matches("any")
    assert wanted.subscription("T", 5).expression == "*"


def test_some_tags() -> None:
    wanted = TagFilter.parse("A||  B")
    assert (wanted.matches("A"), wanted.matches("B"), wanted.matches("C"), wanted.matches(None)) == (
        True,
        True,
        False,
        False,
    )
    subscription = wanted.subscription("T", 5)
    assert (subscription.tags, subscription.codes, subscription.version) == (("A", "B"), (65, 66), 5)


@pytest.mark.parametrize("expression", ["A ||", "|| B", "A || || B"])
def test_empty_tags_are_refused(expression: str) -> None:
    with pytest.raises(UsageError):
        TagFilter.parse(expression)
