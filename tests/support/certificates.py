"""Keys and certificates made by the machine's openssl: a new authority for each folder, and who it speaks for."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


def require_openssl() -> None:
    """Skip the test, with words, where nothing makes certificates."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on the PATH: nothing makes certificates here")


@dataclass(frozen=True)
class Authority:
    """An authority in a folder, which makes certificates there."""

    folder: Path
    name: str = "authority"

    @classmethod
    def make(cls, folder: Path, name: str = "authority") -> Authority:
        require_openssl()
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(folder, name)
        made._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem",
        )  # fmt: skip
        return made

    @property
    def trust(self) -> str:
        """The file that others trust."""
        return str(self.folder / f"{self.name}.pem")

    def certify(self, who: str, *, hosts: str = "IP:127.0.0.1,DNS:localhost", days: int = 2) -> Certified:
        """Make a key and a certificate of this common name; below 0 days it has expired."""
        extensions = self.folder / f"{who}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        self._openssl(
            "req", "-new", *curve, "-nodes", "-subj", f"/CN={who}", "-keyout", f"{who}.key", "-out", f"{who}.csr"
        )
        self._openssl(
            "x509", "-req", "-in", f"{who}.csr", "-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key",
            "-CAcreateserial", "-days", str(days), "-extfile", extensions.name, "-out", f"{who}.pem",
        )  # fmt: skip
        for key in (f"{who}.key", f"{self.name}.key"):
            (self.folder / key).chmod(0o600)
        return Certified(str(self.folder / f"{who}.pem"), str(self.folder / f"{who}.key"))

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Certified:
    """The files of a certificate and its key."""

    certificate: str
    key: str


def copy_files(certified: Certified, certificate: Path, key: Path) -> None:
    """Put a certificate and its key in the place of others."""
    certificate.write_bytes(Path(certified.certificate).read_bytes())
    key.write_bytes(Path(certified.key).read_bytes())
    key.chmod(0o600)


def both(one: Authority, other: Authority, path: Path) -> str:
    """Write a file of two authorities, and return its path."""
    path.write_bytes(Path(one.trust).read_bytes() + Path(other.trust).read_bytes())
    return str(path)


def secret_file(path: Path | str, text: str, mode: int = 0o600) -> str:
    """Write a file, by its mode for nobody else; return its path."""
    Path(path).write_text(text)
    Path(path).chmod(mode)
    return str(path)
