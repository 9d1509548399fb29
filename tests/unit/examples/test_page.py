"""The demo's page: what does not show in a run that goes well."""

from __future__ import annotations

from examples.flights import page


def test_numbers_of_moments_that_are_close_together_stand_above_each_other() -> None:
    assert page._levels([0.0, 2.0, 2.1, 2.15, 2.2, 2.25, 3.0, 3.1], apart=0.3) == [0, 0, 1, 2, 3, 4, 0, 1]
    assert page._levels([], apart=1.0) == []
