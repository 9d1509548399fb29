import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallystick.cli import times
from tallystick.errors import UsageError


@pytest.mark.parametrize(
    ("milliseconds", "written"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_792_000_000_050, "2026-10-14T17:46:40.050Z"),
        (1_792_000_000_999, "2026-10-14T17:46:40.999Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1 << 62, f"{1 << 62} ms"),
    ],
)
def test_a_time_is_shown_with_three_digits_of_its_second(milliseconds: int, written: str) -> None:
    assert times.shown(milliseconds) == written


@pytest.mark.parametrize("written", ["1792000000050", "2026-10-14T17:46:40.050Z", "2026-10-14T19:46:40.050+02:00"])
def test_the_same_time_typed_in_several_ways(written: str) -> None:
    assert times.parse(written, "-o") == 1_792_000_000_050


@example(541_528_830_407)
@example(1_084_278_731_929)
@given(st.integers(0, 4 * 10**12))
def test_each_time_that_is_shown_is_typed_as_the_same_one(milliseconds: int) -> None:
    assert times.parse(times.shown(milliseconds), "-o") == milliseconds


@pytest.mark.parametrize("written", ["yesterday", "", "٣", "9" * 30, "-5"])
def test_what_is_no_time(written: str) -> None:
    with pytest.raises(UsageError, match="--since is a time as"):
        times.parse(written, "--since")


def test_no_message_is_older_than_the_numbers_that_say_when() -> None:
    assert times.parse("1970-01-01T00:00Z", "--since") == 0
    with pytest.raises(UsageError, match=r"^--since is a time from 1970 on \(given=1969-12-31T23:59Z\)"):
        times.parse("1969-12-31T23:59Z", "--since")
