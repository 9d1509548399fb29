from __future__ import annotations

from dataclasses import replace

import pytest

from tallystick.rocketmq.broker.copy_proof import Proof, objection, proof_of
from tallystick.rocketmq.ha.status import FollowStatus
from tallystick.rocketmq.wire.ha import MasterHello

HELLO = MasterHello(0, 500, 500, instance="one")
PROVEN = FollowStatus("m:1", "following", True, 400, 400, 400, 0, 0, 0, HELLO, "", 3)
UNPROVEN = replace(PROVEN, proven=False, master_hello=None)
EMPTY = replace(PROVEN, end=0, link=0, master_hello=None, proven=False)


@pytest.mark.rule("H12")
@pytest.mark.parametrize(
    ("status", "proof"),
    [
        (PROVEN, Proof(3, by_end=False, instance="one")),
        (
            replace(PROVEN, master_hello=MasterHello(0, 500, 500)),
            Proof(3, by_end=False, instance=""),
        ),  # an older one of ours
        (UNPROVEN, Proof(3, by_end=True, instance="unproven")),
        (EMPTY, Proof(0, by_end=False, instance="")),
    ],
)
def test_h12_what_speaks_for_a_master(status: FollowStatus, proof: Proof) -> None:
    assert proof_of(status) == proof
    assert objection(proof, status, 400 if proof.by_end else None) is None


def test_h12_a_log_that_is_not_followed_speaks_for_nobody() -> None:
    why = proof_of(replace(PROVEN, link=0, why="", state="asking the master"))
    assert isinstance(why, str) and why.endswith("asking the master")


@pytest.mark.rule("H12")
@pytest.mark.parametrize(
    ("before", "after", "master_end", "why"),
    [
        (PROVEN, replace(PROVEN, link=4), None, "lost sight"),
        (PROVEN, replace(PROVEN, link=0), None, "lost sight"),
        (UNPROVEN, UNPROVEN, 399, "lost messages"),
        (EMPTY, replace(EMPTY, end=1), None, "first messages came"),
    ],
)
def test_h12_what_speaks_against_a_table_that_came(
    before: FollowStatus, after: FollowStatus, master_end: int | None, why: str
) -> None:
    proof = proof_of(before)
    assert isinstance(proof, Proof)
    assert why in (objection(proof, after, master_end) or "")
