"""What clients and bookies of a simulated cluster say to each other, heard at the moment in which they say it.

A client speaks the version that it was told to (``ClientSettings.wire``), and nobody says more of a LAC than is
confirmed: writers in WRITE_LAC; bookies beside every entry, when they answer a long poll, and in READ_LAC.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tallystick.bookkeeper.wire.v3 import WriteLacRequest, decode_request
from tallystick.bookkeeper.wire.v3_responses import ReadLacResponse, ReadResponse, decode_response
from tallystick.sim.cluster_hosts import PORT
from tallystick.sim.cluster_judge import ClusterJudge
from tallystick.sim.cluster_requests import RequestWatch
from tallystick.sim.virtual.transport import SimTransport

_V3_BEGINS = 0x0A  # the tag of a header
_OPERATION_AT = 5
_IDS = struct.Struct(">qq")  # a ledger, and its LAC
_ENTRY_LAC = struct.Struct(">q8xq")  # a ledger, and the LAC of before an entry


class WireWatch:
    """``wrote`` everything."""

    def __init__(self, judge: ClusterJudge, now: Callable[[], float]) -> None:
        self._judge, self.requests = judge, RequestWatch(judge, now)
        self.wires: dict[str, str] = {}  # of the clients, by address; bookies read each other, too
        self._rests: dict[SimTransport, bytes] = {}  # of frames that are not whole

    def wrote(self, end: SimTransport, data: bytes) -> None:
        """An end of a connection has written bytes. Raises Violation."""
        is_bookie = end.here[1] == PORT
        if not is_bookie and end.there[1] != PORT:
            return
        data = self._rests.pop(end, b"") + data
        start = 0
        while (stop := start + 4 + int.from_bytes(data[start : start + 4], "big")) <= len(data) and len(data) > start:
            if is_bookie:
                self._response(end, data[start + 4 : stop])
            else:
                self._request(end, data[start + 4 : stop])
            start = stop
        if start < len(data):
            self._rests[end] = data[start:]

    def _request(self, end: SimTransport, body: bytes) -> None:
        client, is_v3 = end.here[0], body[0] == _V3_BEGINS
        wire = self.wires.get(client, "auto")  # a bookie fetches by what the other one speaks
        if (wire == "v3") > is_v3 or (wire == "v2" and is_v3):
            self._judge.fail("wire", f"{client} speaks {wire}, and sends {body[: _OPERATION_AT + 1].hex()}…")
        if not is_v3:
            return
        request = decode_request(body)
        self.requests.requested(end, request)
        if isinstance(request, WriteLacRequest):
            self._judge.told(request.ledger, request.lac, client)
            self._judge.told_by_writer(request.ledger)

    def _response(self, end: SimTransport, body: bytes) -> None:
        if body[0] != _V3_BEGINS:
            return
        response, bookie = decode_response(body), end.here[0]
        if isinstance(response, ReadResponse):
            if response.max_lac is not None:
                self._judge.told(response.ledger, response.max_lac, bookie)
        elif isinstance(response, ReadLacResponse):
            for form, part in ((_IDS, response.lac_body), (_ENTRY_LAC, response.last_entry_body)):
                if part:
                    ledger, lac = form.unpack_from(part)
                    self._judge.told(ledger, lac, bookie)
        self.requests.responded(end, body[_OPERATION_AT], response)
