from __future__ import annotations

import pytest

from tallystick import errors
from tallystick.errors import DigestMismatch, TallyError, Unauthorized
from tallystick.pipeline.codes import code_of, coded, error_of


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


@pytest.mark.parametrize("kind", [errors.UsageError, errors.CheckpointLost, errors.MetadataError])
def test_an_error_is_known_again_in_the_text_of_spark(kind: type[errors.TallyError]) -> None:
    text = f"Traceback …\n  errors.{kind.__name__}: [{code_of(kind)}] unknown option: x (given=1)\n\n\tat java"
    error = error_of(text)
    assert type(error) is kind and error.message == "unknown option: x (given=1)"


def test_of_an_error_that_came_of_another_the_last_one_is_told() -> None:
    text = "[TALLY-METADATA-ERROR] cause\n\nThe above exception …\n\n[TALLY-USAGE-ERROR] what it means\n\tat java"
    error = error_of(text)
    assert type(error) is errors.UsageError and error.message == "what it means"


def test_other_texts_are_no_errors_of_ours() -> None:
    assert error_of("[UNSUPPORTED] no") is None
    assert type(error_of("[TALLY-OF-ANOTHER-VERSION] what")) is errors.TallyError
