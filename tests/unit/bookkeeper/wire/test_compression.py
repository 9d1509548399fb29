"""What Pulsar compresses, both ways, and no byte more than was announced."""

from __future__ import annotations

import builtins
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.compression import Compression, compress, decompress
from tallystick.errors import UsageError

EVERY = pytest.mark.parametrize("compression", Compression)
REAL = [each for each in Compression if each is not Compression.NONE]


@EVERY
@given(data=st.binary(max_size=300) | st.integers(0, 9).map(lambda count: b"tally" * 1000 * count))
def test_bytes_come_back(compression: Compression, data: bytes) -> None:
    packed = compress(data, compression)
    assert decompress(packed, compression, size=len(data)) == data
    assert decompress(memoryview(b"--" + packed)[2:], compression, size=len(data)) == data


def test_zstd_works_no_harder_than_pulsar_does() -> None:
    """A level more makes fewer bytes, and takes several times as long."""
    cramjam = pytest.importorskip("cramjam")
    data = b"".join(b"%d" % (at * at) for at in range(20_000))
    assert compress(data, Compression.ZSTD) == bytes(cramjam.zstd.compress(data, level=3))


@EVERY
@pytest.mark.parametrize("size", [0, 99, 101, 5000])
def test_another_size_than_was_announced_is_refused(compression: Compression, size: int) -> None:
    with pytest.raises(ValueError):
        decompress(compress(b"tally" * 20, compression), compression, size=size)


@EVERY
def test_bytes_that_were_cut_off_are_refused(compression: Compression) -> None:
    packed = compress(bytes(range(100)), compression)
    for stop in range(len(packed)):
        with pytest.raises(ValueError):
            decompress(packed[:stop], compression, size=100)


@pytest.mark.parametrize("compression", REAL)
@given(data=st.binary(max_size=60), size=st.integers(0, 100))
def test_foreign_bytes_raise_nothing_else(compression: Compression, data: bytes, size: int) -> None:
    try:
        assert len(decompress(data, compression, size=size)) == size
    except ValueError:
        return


@pytest.mark.rule("N7")
@pytest.mark.parametrize("compression", REAL)
def test_what_would_be_a_gigabyte_is_never_made(compression: Compression) -> None:
    bomb = compress(bytes(64 << 20), compression)
    with pytest.raises(ValueError):
        decompress(bomb, compression, size=1000)


def test_nothing_is_in_a_stream_that_goes_on() -> None:
    stream = zlib.compressobj()
    with pytest.raises(ValueError, match="cut off"):
        decompress(stream.compress(b"") + stream.flush(zlib.Z_SYNC_FLUSH), Compression.ZLIB, size=0)


def test_names() -> None:
    assert Compression.parse("zstd") is Compression.parse(Compression.ZSTD) is Compression.ZSTD
    with pytest.raises(UsageError, match="one of none, lz4, zlib, zstd, snappy"):
        Compression.parse("brotli")


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "cramjam":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    for compression in Compression:
        if compression in (Compression.NONE, Compression.ZLIB):
            assert decompress(compress(b"tally", compression), compression, size=5) == b"tally"
            continue
        with pytest.raises(UsageError, match=r"needs cramjam: pip install 'cramjam>=2\.11'"):
            compress(b"tally", compression)
        with pytest.raises(UsageError, match="needs cramjam"):
            decompress(b"tally", compression, size=5)
