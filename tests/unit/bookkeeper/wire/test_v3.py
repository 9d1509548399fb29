"""Messages of version 3, and frames that are none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import requests_pb2, v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3 import Header
from tallystick.errors import RemoteProtocolError

HEADER = Header(7)
IDS = st.integers(-(1 << 63), (1 << 63) - 1)
HEADERS = st.builds(Header, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1), st.integers(1, 3))
REQUESTS = st.one_of(
    st.builds(v3.AddRequest, HEADERS, IDS, IDS, st.binary(), st.binary(), st.booleans(), st.booleans()),
    st.builds(v3.ReadRequest, HEADERS, IDS, IDS, st.none(), st.just(False), st.none() | IDS, st.none() | IDS),
    st.builds(v3.ReadRequest, HEADERS, IDS, IDS, st.none() | st.binary(), st.just(True), st.none() | IDS),
    st.builds(v3.WriteLacRequest, HEADERS, IDS, IDS, st.binary(), st.binary()),
    st.builds(v3.ReadLacRequest, HEADERS, IDS),
    st.builds(v3.ForceRequest, HEADERS, IDS),
    st.builds(v3.EntryListRequest, HEADERS, IDS),
    st.builds(v3.BookieInfoRequest, HEADERS, IDS),
    st.builds(v3.AuthRequest, HEADERS, st.binary(), st.binary()),
    st.builds(v3.StartTlsRequest, HEADERS),
)
NUMBERED = st.sampled_from(sorted(v3.NUMBERS))
NUMBER = st.integers(0, (1 << 64) - 1)
RESPONSES = st.one_of(
    st.builds(
        responses.ReadResponse, NUMBER, NUMBERED, IDS, IDS, st.none() | st.binary(), st.none() | IDS, st.none() | IDS
    ),
    st.builds(responses.AddResponse, NUMBER, NUMBERED, IDS, IDS),
    st.builds(responses.WriteLacResponse, NUMBER, NUMBERED, IDS),
    st.builds(responses.ForceResponse, NUMBER, NUMBERED, IDS),
    st.builds(responses.ReadLacResponse, NUMBER, NUMBERED, IDS, st.none() | st.binary(), st.none() | st.binary()),
    st.builds(responses.BookieInfoResponse, NUMBER, NUMBERED, st.none() | IDS, st.none() | IDS),
    st.builds(responses.EntryListResponse, NUMBER, NUMBERED, IDS, st.none() | st.binary()),
    st.builds(responses.AuthResponse, NUMBER, NUMBERED, st.binary(), st.binary()),
)


@given(REQUESTS)
def test_a_request_comes_as_it_was_sent(request: v3.Request) -> None:
    assert not isinstance(request, v3.UnknownRequest)
    frame = v3.encode_request(request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert v3.decode_request(memoryview(frame)[4:]) == request


@given(RESPONSES)
def test_a_response_comes_as_it_was_sent(response: responses.Response) -> None:
    assert responses.decode_response(responses.encode_response(response)[4:]) == response


def test_what_is_zero_or_empty_is_sent_all_the_same() -> None:
    read = v3.ReadRequest(HEADER, 0, -1, b"", True, 0, 0)
    assert v3.decode_request(v3.encode_request(read)[4:]) == read
    for response in (
        responses.ReadResponse(0, Code.OK, 0, 0, b"", 0, 0),
        responses.ReadLacResponse(0, Code.OK, 0, b"", b""),
        responses.BookieInfoResponse(0, Code.OK, 0, 0),
        responses.EntryListResponse(0, Code.OK, 0, b""),
    ):
        assert responses.decode_response(responses.encode_response(response)[4:]) == response


def test_the_key_of_a_read_that_fences_nothing_is_not_kept() -> None:
    read = v3.ReadRequest(HEADER, 0, -1, b"k" * 1000, False, 0, 0)
    assert v3.decode_request(v3.encode_request(read)[4:]) == replace(read, master_key=None)


@given(st.binary(max_size=200))
def test_bytes_of_a_stranger_are_a_message_or_refused(body: bytes) -> None:
    for decode in (v3.decode_request, responses.decode_response):
        try:
            message = decode(body)
        except RemoteProtocolError:
            continue
        assert isinstance(message, v3.Request | responses.Response)


def test_a_refusal_has_no_message_of_its_operation() -> None:
    refused = responses.RefusedResponse(3, v3.Operation.START_TLS, Code.BAD_REQUEST)
    assert responses.decode_response(responses.encode_response(refused)[4:]) == refused


def test_done_without_what_was_done_is_not_taken_for_it() -> None:
    message = requests_pb2.Response(status=0)
    message.header.version, message.header.operation, message.header.request_id = 3, v3.Operation.READ, 5
    assert responses.decode_response(message.SerializeToString()) == responses.RefusedResponse(
        5, v3.Operation.READ, Code.UNDEFINED
    )


def test_the_inner_status_counts_where_the_outer_one_is_good() -> None:
    message = requests_pb2.Response(status=0)
    message.header.version, message.header.operation, message.header.request_id = 3, v3.Operation.ADD, 5
    message.add.status, message.add.ledger, message.add.entry = 504, 1, 2
    assert responses.decode_response(message.SerializeToString()) == responses.AddResponse(5, Code.FENCED, 1, 2)
    message.status = 502
    assert responses.decode_response(message.SerializeToString()) == responses.AddResponse(5, Code.UNAUTHORIZED, 1, 2)
    message.status, message.add.status = 0, 999
    assert responses.decode_response(message.SerializeToString()) == responses.AddResponse(5, Code.UNDEFINED, 1, 2)


@pytest.mark.parametrize("operation", [v3.Operation.RANGE_READ, v3.Operation.RANGE_ADD, v3.Operation.BATCH_READ])
def test_an_operation_without_a_message_is_known_by_its_number(operation: v3.Operation) -> None:
    message = requests_pb2.Request()
    message.header.version, message.header.operation, message.header.request_id = 3, operation, 5
    assert v3.decode_request(message.SerializeToString()) == v3.UnknownRequest(Header(5), operation)


@pytest.mark.parametrize("operation", [-1, 0, 13, 99])
def test_another_number_is_no_request(operation: int) -> None:
    message = requests_pb2.Request()
    message.header.version, message.header.operation, message.header.request_id = 3, operation, 5
    with pytest.raises(RemoteProtocolError, match="unknown operation"):
        v3.decode_request(message.SerializeToString())


@pytest.mark.parametrize("version", [0, 4, -1])
def test_a_version_that_there_never_was_is_no_request(version: int) -> None:
    with pytest.raises(RemoteProtocolError, match="unknown operation or version"):
        v3.decode_request(v3.encode_request(v3.ForceRequest(Header(1, version=version), 5))[4:])


def test_requests_without_their_message_are_refused_but_two() -> None:
    for operation in (v3.Operation.ADD, v3.Operation.READ, v3.Operation.WRITE_LAC, v3.Operation.FORCE):
        message = requests_pb2.Request()
        message.header.version, message.header.operation, message.header.request_id = 3, operation, 5
        with pytest.raises(RemoteProtocolError, match="lacks the message"):
            v3.decode_request(message.SerializeToString())
    message.header.operation = v3.Operation.BOOKIE_INFO
    assert v3.decode_request(message.SerializeToString()) == v3.BookieInfoRequest(Header(5), 0)
    message.header.operation = v3.Operation.START_TLS
    assert v3.decode_request(message.SerializeToString()) == v3.StartTlsRequest(Header(5))


def test_nested_groups_of_any_depth_are_refused_or_skipped() -> None:
    groups = b"\xfb\x3f" * 100_000 + b"\xfc\x3f" * 100_000  # field 1023, begins and ends
    with pytest.raises(RemoteProtocolError):
        v3.decode_request(groups)
    frame = v3.encode_request(v3.ForceRequest(HEADER, 5))[4:]
    assert v3.decode_request(frame + b"\xfb\x3f\xfc\x3f") == v3.ForceRequest(HEADER, 5)
