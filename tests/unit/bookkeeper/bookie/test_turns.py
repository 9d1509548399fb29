"""Nobody is served for longer than a turn has time, in order, adds before reads, hosts one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.bookie.turns import Kind, TurnsCore

HOST = "127.0.0.1"


def turns() -> TurnsCore[str]:
    return TurnsCore(1.0)


def serve(made: TurnsCore[str], seconds: float) -> list[str]:
    served = []
    for peer, kind in made.begin():
        served.append(peer)
        made.spent(kind, seconds, peer, "127.0.0.9" if peer.startswith("stranger") else HOST)
    return served


def serve_one(made: TurnsCore[str]) -> list[str]:
    """A turn in which one busy host is served, and waits again, or the honest one."""
    served = []
    for peer, kind in made.begin():
        served.append(peer)
        host = HOST if peer == "honest" else peer.replace("busy ", "127.0.1.")
        made.spent(kind, 1.0, peer, host)
        if peer != "honest":
            made.wait(kind, peer, host)
    return served


def test_all_are_admitted_until_the_time_of_their_kind_is_up() -> None:
    made = turns()
    for _ in range(2):
        assert made.admits(Kind.ADD) and made.admits(Kind.READ)
        made.spent(Kind.READ, 0.5, "reader", HOST)
    assert made.admits(Kind.ADD) and not made.admits(Kind.READ)
    assert not made.due
    assert serve(made, 0.0) == []
    assert made.admits(Kind.READ)


def test_who_waits_is_served_in_order_adds_first_and_only_while_there_is_time() -> None:
    made = turns()
    for reader in ("r0", "r1", "r2"):
        made.wait(Kind.READ, reader, HOST)
    for writer in ("w0", "w1", "w2"):
        made.wait(Kind.ADD, writer, HOST)
    assert not made.admits(Kind.ADD) and not made.admits(Kind.READ), "nobody passes those who wait"
    assert serve(made, 0.6) == ["w0", "w1", "r0", "r1"]
    assert made.due
    assert serve(made, 0.6) == ["w2", "r2"]
    assert not made.due


def test_adds_without_end_leave_readers_their_time() -> None:
    made = turns()
    made.wait(Kind.READ, "reader", HOST)
    for number in range(10):
        made.wait(Kind.ADD, f"writer {number}", HOST)
    assert serve(made, 5.0) == ["writer 0", "reader"]


def test_who_waits_again_in_its_turn_is_served_in_the_next() -> None:
    made = turns()
    made.wait(Kind.ADD, "a", HOST)
    for peer, kind in made.begin():
        assert peer == "a"
        made.wait(kind, peer, HOST)
    assert made.due
    assert serve(made, 0.0) == ["a"]


def test_who_left_is_not_served() -> None:
    made = turns()
    for peer in ("a", "b"):
        made.wait(Kind.READ, peer, HOST)
    served = []
    for peer, _ in made.begin():
        served.append(peer)
        made.leave("b", HOST)
    assert served == ["a"]
    assert not made.due


def test_a_host_with_hundreds_of_connections_keeps_the_others_waiting_no_longer_than_one_with_a_single_one() -> None:
    made = turns()
    for number in range(400):
        made.wait(Kind.ADD, f"stranger {number}", "127.0.0.9")
    for number in range(2):
        made.wait(Kind.ADD, f"honest {number}", HOST)
    turns_of_all = [serve(made, 1.0) for _ in range(5)]
    assert turns_of_all == [["stranger 0"], ["honest 0"], ["stranger 1"], ["honest 1"], ["stranger 2"]]


def test_who_waits_again_comes_behind_the_others_of_its_host_and_behind_other_hosts() -> None:
    made = turns()
    for peer, host in (("a0", "a"), ("a1", "a"), ("b0", "b")):
        made.wait(Kind.READ, peer, host)
    served = []
    for _ in range(5):
        [peer] = serve(made, 1.0)
        served.append(peer)
        made.wait(Kind.READ, peer, peer[0])
    assert served == ["a0", "b0", "a1", "b0", "a0"]


def test_a_request_that_comes_alone_passes_those_that_go_on_with_theirs() -> None:
    made = turns()
    for number in range(400):
        made.spent(Kind.READ, 0.001, f"busy {number}", HOST)  # nobody had to wait for that
    for number in range(400):
        made.wait(Kind.READ, f"busy {number}", HOST)
    made.wait(Kind.READ, "alone", HOST)
    assert serve(made, 1.0) == ["alone"]


def test_a_host_that_asks_now_and_then_waits_for_no_round_of_a_hundred_busy_ones() -> None:
    """It had a hundredth of the service: one request for one turn of each of them."""
    made = turns()
    for number in range(100):
        made.wait(Kind.ADD, f"busy {number}", f"127.0.1.{number}")
    for _ in range(150):
        serve_one(made)
    for _ in range(5):
        made.wait(Kind.ADD, "honest", HOST)
        turns_until = 0
        while "honest" not in serve_one(made):
            turns_until += 1
        assert turns_until <= 1
        for _ in range(100):  # it used less than its share since
            serve_one(made)


def test_a_host_of_which_all_left_is_forgotten() -> None:
    made = turns()
    for peer in ("a", "b"):
        made.wait(Kind.ADD, peer, HOST)
    made.leave("a", HOST)
    assert made.due and made.admits(Kind.READ) and not made.admits(Kind.ADD)
    made.leave("b", HOST)
    made.leave("c", HOST)
    assert not made.due and made.admits(Kind.ADD)


class EagerTurns(TurnsCore[str]):
    """Charges each turn by itself."""

    def spent(self, kind: Kind, seconds: float, peer: str, host: str) -> None:
        self._waiting[kind].spent(peer, host, seconds)


PEERS = st.tuples(st.sampled_from("ab"), st.sampled_from("012")).map("".join)


@given(
    st.lists(st.tuples(PEERS, st.integers(1, 64), st.booleans())), st.permutations([h + n for h in "ab" for n in "012"])
)
def test_short_turns_that_are_charged_together_are_charged_as_each_by_itself(
    turns_of: list[tuple[str, int, bool]], waiting: list[str]
) -> None:
    """Of 8 to 500 us; some leave, and come again."""
    made, eager = TurnsCore[str](1.0), EagerTurns(1.0)
    for core in made, eager:
        for peer, length, leaves in turns_of[:20]:
            core.spent(Kind.ADD, length / (1 << 17), peer, peer[0])
            if leaves:
                core.leave(peer, peer[0])
        for peer in waiting:
            core.wait(Kind.ADD, peer, peer[0])
    assert list(made.begin()) == list(eager.begin())


def test_who_is_gone_leaves_nothing_that_is_to_be_charged() -> None:
    made = turns()
    for number in range(5000):
        made.spent(Kind.ADD, 1e-4, f"peer {number}", HOST)
        made.leave(f"peer {number}", HOST)
    assert not any(made._uncharged)
