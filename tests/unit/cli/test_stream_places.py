import pytest

from tallystick import Position
from tallystick.cli.stream_places import Place
from tallystick.errors import UsageError


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("beginning", Place()),
        ("end", Place(last=0)),
        ("-10", Place(last=10)),
        ("s@5", Place(time_ms=5)),
        ("s@1970-01-01T00:00:01Z", Place(time_ms=1000)),
        ("7:41", Place(position=Position(7, 41))),
        ("7:41:3", Place(position=Position(7, 41, 3))),
    ],
)
def test_a_place(written: str, place: Place) -> None:
    assert Place.parse(written) == place


@pytest.mark.parametrize("written", ["", "10", "-", "--1", "start", "7:", "a:b", "7:1:2:3", "e@5", "-1.5"])
def test_what_is_no_place_names_all_that_are(written: str) -> None:
    with pytest.raises(UsageError, match=r"-o is beginning, end, -N .*s@TIME, or LEDGER:ENTRY .*LEDGER:ENTRY:INDEX"):
        Place.parse(written)


def test_what_is_no_time() -> None:
    with pytest.raises(UsageError, match="-o s@ is a time as"):
        Place.parse("s@now")
