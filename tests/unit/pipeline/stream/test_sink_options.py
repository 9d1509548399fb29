"""What a query that writes a stream is told, and what of it is refused."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.stream.settings import UNLIMITED, StreamSettings
from tallystick.errors import UsageError
from tallystick.pipeline.stream.sink_options import SinkOptions

URI = "sqlite:///tmp/m.db"
STREAM = {"path": "t/n/persistent/s", "uri": URI}
BATCH = STREAM | {"txnAppId": "app", "txnVersion": "7"}


def parse(options: dict[str, str], *, follows: bool) -> SinkOptions:
    return SinkOptions.parse({name.lower(): value for name, value in options.items()}, {}, follows=follows)


def test_a_query_is_known_by_its_id_if_it_has_no_name_of_its_own() -> None:
    assert parse(STREAM, follows=True) == SinkOptions(URI, "t/n/persistent/s", None, None, StreamSettings(3, 2, 2))
    assert parse(STREAM | {"application": "mine"}, follows=True).application == "mine"


def test_a_batch_has_a_name_and_a_number() -> None:
    options = parse(BATCH, follows=False)
    assert (options.application, options.version, options.switch) == ("app", 7, False)


def test_rows_are_stored_once_unless_at_least_once_is_said() -> None:
    assert parse(STREAM, follows=True).is_once and parse(BATCH | {"delivery": "Exactly-Once"}, follows=False).is_once
    for follows in (True, False):
        options = parse(STREAM | {"delivery": "at-least-once", "switch": "true"}, follows=follows)
        assert (options.is_once, options.application, options.switch) == (False, None, True)


def test_how_it_is_stored() -> None:
    chosen = {
        "stream": "persistent://t/n/s", "uri": URI, "switch": "true", "compression": "zstd",
        "ensemble": "5", "writeQuorum": "4", "ackQuorum": "3", "retentionSeconds": "60", "retentionBytes": "64m",
    }  # fmt: skip
    options = parse(chosen, follows=True)
    assert options.stream == "t/n/persistent/s" and options.switch
    assert options.settings == StreamSettings(5, 4, 3, compression="zstd", retention_s=60, retention_bytes=64 << 20)
    assert parse(STREAM, follows=True).settings.retention_s == UNLIMITED
    assert parse(STREAM | {"entryFormat": "raw"}, follows=True).settings.entry_format == "raw"


@pytest.mark.parametrize(
    ("options", "follows", "text"),
    [
        ({"uri": URI}, True, "give the option stream"),
        (STREAM | {"txnVersion": "1"}, True, "txnVersion is an option of df.write"),
        (BATCH | {"application": "a"}, False, "application is an option of df.writeStream"),
        (STREAM, False, "txnAppId and txnVersion"),
        (STREAM | {"txnAppId": "a"}, False, "txnAppId and txnVersion"),
        (BATCH | {"txnVersion": "-1"}, False, "txnVersion"),
        (BATCH | {"txnVersion": "x"}, False, "txnVersion"),
        (BATCH | {"txnAppId": ""}, False, ""),
        (STREAM | {"delivery": "at-most-once"}, True, "exactly-once or at-least-once"),
        (STREAM | {"delivery": "at-least-once", "application": "a"}, True, "application says nothing"),
        (BATCH | {"delivery": "at-least-once"}, False, "txnAppId says nothing"),
        (STREAM | {"switch": "maybe"}, True, "switch"),
        (STREAM | {"compression": "gzip"}, True, "compression"),
        (STREAM | {"compresion": "lz4"}, True, "did you mean compression"),
        (STREAM | {"ensemble": "0"}, True, "ensemble"),
        (STREAM | {"ensemble": "2", "writeQuorum": "3"}, True, ""),
        (STREAM | {"path": "t/n"}, True, ""),
        (STREAM | {"stream": "t/n/persistent/other"}, True, ""),
        ({"path": "t/n/persistent/s"}, True, ""),
    ],
)
def test_what_is_refused(options: dict[str, str], follows: bool, text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(options, follows=follows)
    assert text in str(refused.value)
