from __future__ import annotations

from tallystick.runtime.once import Once


def test_a_thing_is_new_once() -> None:
    once = Once()
    assert once.is_new(("garbage", "10.0.0.1"))
    assert not once.is_new(("garbage", "10.0.0.1"))
    assert once.is_new(("garbage", "10.0.0.2"))


def test_the_memory_is_bounded_and_forgets_what_was_not_asked_about_for_longest() -> None:
    once = Once(capacity=2)
    assert [once.is_new(key) for key in "aba"] == [True, True, False]
    assert once.is_new("c")
    assert len(once) == 2
    assert not once.is_new("a"), "asked about after b"
    assert once.is_new("b")
