"""Tests of functions that have a twin in C run on both, whichever this process uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.codec_twins import COMPILED
from tallystick.bookkeeper.wire import digest
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.implementation import REFERENCES

CRC32C = DigestType.CRC32C


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where the module of a test has such functions, the test has two runs."""
    if not REFERENCES.keys().isdisjoint(vars(metafunc.module)):
        metafunc.parametrize("codec", ["python", "compiled"], indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def codec(request: pytest.FixtureRequest) -> Iterator[None]:
    """The functions in the test's module, and the digest, are of the implementation that the parameter names."""
    which = getattr(request, "param", None)
    if which == "compiled" and COMPILED is None:
        pytest.skip("there is no compiled codec here: no compiler when tallystick was installed")
    with pytest.MonkeyPatch.context() as patch:
        if which is not None:
            functions = REFERENCES if which == "python" else {name: getattr(COMPILED, name) for name in REFERENCES}
            for name in REFERENCES.keys() & vars(request.module).keys():
                patch.setattr(request.module, name, functions[name])
            compute, compute_all = functions["crc32c_digest"], functions["crc32c_digests"]
            known = replace(digest.Digest.of(CRC32C), compute=compute, compute_all=compute_all)
            patch.setitem(digest._WITHOUT_PASSWORD, CRC32C, known)
        yield
