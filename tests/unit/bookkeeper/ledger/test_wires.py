"""What a client asks of bookies, as values."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.wires import ReadRequest, WriteLacRequest


def test_what_is_logged_of_a_request_shows_no_master_key_and_no_body() -> None:
    key, body = b"k" * 20, b"a body of a LAC"
    requests = ReadRequest(1, 2, key), WriteLacRequest(1, 2, key, body)
    for request in requests:
        assert "kkk" not in repr(request) and "body of" not in repr(request)
