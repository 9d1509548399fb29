from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.ledger.bounds import LedgerBound
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.option_values import CUTTING, OptionValues
from tallystick.pipeline.stream.bounds import StreamBound
from tallystick.pipeline.topic.bounds import Bound as TopicBound
from tallystick.pipeline.topic.options import TopicOptions

KNOWN = {"someName": "", "other": "", **CUTTING}


def test_names_come_in_any_case() -> None:
    values = OptionValues({"SOMENAME": "3", "MaxBytesPerPartition": "64M", "minpartitions": "2"}, KNOWN)
    assert values.integer("someName", 1) == 3
    assert values.limits() == Limits(64 << 20, 2)
    assert "someName" in values and "other" not in values


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown option: zzz; known: someName, other"):
        OptionValues({"zzz": "1"}, KNOWN)
    with pytest.raises(UsageError, match=r"unknown option: SomName, zzz \(did you mean someName\?\); known: someName"):
        OptionValues({"zzz": "1", "SomName": "1"}, KNOWN)


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "²", str(1 << 63), "9" * 5000])
def test_other_than_whole_numbers_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="someName is a whole number"):
        OptionValues({"someName": text}, KNOWN).integer("someName", 1)


@pytest.mark.parametrize("text", ["0", "1t", "m", "²k", "9" * 5000])
def test_other_than_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="someName is a number of bytes"):
        OptionValues({"someName": text}, KNOWN).size("someName", 1)


def test_a_choice_is_one_of_its_words() -> None:
    assert OptionValues({}, KNOWN).choice("other", ("one", "two")) == "one"
    assert OptionValues({"other": " TWO"}, KNOWN).choice("other", ("one", "two")) == "two"
    with pytest.raises(UsageError, match="other is one or two"):
        OptionValues({"other": "three"}, KNOWN).choice("other", ("one", "two"))


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("15 M", 900), ("2h", 7200), ("250", 0.25)])
def test_times(text: str, seconds: float) -> None:
    assert OptionValues({"a": text}, {"a": ""}).seconds("a", 1.0) == seconds
    assert OptionValues({}, {"a": ""}).seconds("a", 1.0) == 1.0


@pytest.mark.parametrize("text", ["s", "-1s", "1d", "1.5s"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(UsageError, match="a is a time, as in 500ms"):
        OptionValues({"a": text}, {"a": ""}).seconds("a", 1.0)


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_value_is_a_variable_that_was_never_set(text: str) -> None:
    with pytest.raises(UsageError, match="the option someName is empty: give it a value, or leave it out"):
        OptionValues({"somename": text}, KNOWN)
    OptionValues({"password": text}, {"password": ""})


def test_a_place_that_is_not_given_is_looked_for() -> None:
    assert OptionValues({}, KNOWN).given_or("someName", lambda: "found") == "found"
    assert OptionValues({"someName": "given"}, KNOWN).given_or("someName", lambda: "found") == "given"


@pytest.mark.parametrize(
    "parse",
    [
        lambda text: StreamBound.parse("startingOffsets", text, "latest"),
        lambda text: TopicBound.parse("startingOffsets", text, 0),
        lambda text: LedgerBound.parse("startingOffsets", text),
        lambda text: TopicOptions.parse({"nameServer": "h:1", "assign": text}, {}),
        lambda text: LedgerOptions.parse({"uri": "sqlite:///u", "ledgers": "1", "passwords": text}, {}),
    ],
    ids=["of streams", "of topics", "of ledgers", "assign", "passwords"],
)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_json_that_is_nested_very_deep_is_none(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(UsageError, match=r"startingOffsets is|assign is JSON|passwords is a JSON object"):
        parse(text)
