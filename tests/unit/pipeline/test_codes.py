from __future__ import annotations

import pytest

from tallystick.errors import DigestMismatch, TallyError, Unauthorized
from tallystick.pipeline.codes import code_of, coded


def test_a_code_is_made_of_the_name() -> None:
    assert code_of(DigestMismatch) == "TALLY-DIGEST-MISMATCH"
    assert code_of(TallyError) == "TALLY-TALLY-ERROR"


def test_an_error_keeps_its_class_and_fields() -> None:
    with pytest.raises(Unauthorized) as failed, coded():
        raise Unauthorized("no", ledger=7)
    assert str(failed.value) == "[TALLY-UNAUTHORIZED] no (ledger=7)"
    assert failed.value.ledger == 7


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), coded():
        raise KeyError("x")
