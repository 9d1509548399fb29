"""What bookies say of LACs beside entries."""

from __future__ import annotations

import gc

from tallystick.bookkeeper.ledger.heard_lacs import HeardLacs


def test_the_highest_lac_of_a_ledger_is_kept_for_who_listens() -> None:
    lacs = HeardLacs()
    lacs.note(7, 3)
    first, second = lacs.listen(7), lacs.listen(7)
    assert (first.lac, second.lac) == (-1, -1)
    for lac in (5, 4):
        lacs.note(7, lac)
    lacs.note(8, 9)
    assert (first.lac, second.lac) == (5, 5)


def test_who_is_gone_leaves_nothing() -> None:
    lacs = HeardLacs()
    heard = lacs.listen(7)
    lacs.note(7, 3)
    del heard
    gc.collect()
    assert lacs.listen(7).lac == -1
