"""Frames of version 3 as the original's client and bookie sent them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.entry_list import EntryList, encode_runs
from tallystick.errors import RemoteProtocolError

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "v3.json").read_text())
FRAMES = [(at, frame) for at, frame in enumerate(GOLDEN["client"])]
EXCHANGES = [exchange for exchange in GOLDEN["v3"] if "v2 READ" not in exchange["name"]]


def body_of(frame: str) -> bytes:
    data = bytes.fromhex(frame)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


@pytest.mark.parametrize("frame", [frame for _, frame in FRAMES], ids=[f"{at} {frame['name']}" for at, frame in FRAMES])
def test_what_the_original_sends_is_understood(frame: dict[str, str]) -> None:
    """Requests of its client have flags before other fields: their bytes are another order of the same message."""
    body = body_of(frame["frame"])
    if frame["from"] == "client":
        request = v3.decode_request(body)
        assert not isinstance(request, v3.UnknownRequest)
        assert v3.decode_request(v3.encode_request(request)[4:]) == request
    else:
        assert responses.encode_response(responses.decode_response(body)).hex() == frame["frame"]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=[exchange["name"] for exchange in EXCHANGES])
def test_responses_of_the_original_are_made_byte_for_byte(exchange: dict[str, str]) -> None:
    body = body_of(exchange["request"])
    if exchange["response"] == "closed":
        if exchange["name"] != "then a v3 READ on it":
            with pytest.raises(RemoteProtocolError):
                v3.decode_request(body)
        return
    request, response = v3.decode_request(body), responses.decode_response(body_of(exchange["response"]))
    assert response.request_id == request.header.request_id
    assert responses.encode_response(response).hex() == exchange["response"]


def test_a_list_of_entries_is_made_byte_for_byte() -> None:
    recorded = next(exchange for exchange in GOLDEN["v3"] if exchange["name"] == "GET_LIST_OF_ENTRIES")
    response = responses.decode_response(body_of(recorded["response"]))
    assert isinstance(response, responses.EntryListResponse) and response.availability is not None
    assert list(EntryList.decode(response.availability).runs()) == [(0, 2)]
    assert encode_runs([(0, 2)]) == response.availability
