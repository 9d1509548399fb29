"""Network file systems are found by their mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.bookkeeper.metadata import mounts
from tallystick.errors import UsageError

MOUNTINFO = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:40 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/local rw - xfs /dev/sdb1 rw
32 22 0:42 / /with\\040space rw - cifs //server/share rw
33 22 0:43 / /data rw - ext4 /dev/sdc1 rw
34 22 0:44 / /data rw - fuse.sshfs host: rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/x.db", "ext4"),
        ("/home/me/x.db", "nfs4"),
        ("/homes/x.db", "ext4"),
        ("/home/me/local/x.db", "xfs"),
        ("/with space/x.db", "cifs"),
        ("/data/x.db", "fuse.sshfs"),
    ],
)
def test_the_innermost_and_last_mount_counts(path: str, kind: str) -> None:
    assert mounts.filesystem_of(path, MOUNTINFO) == kind


def test_a_file_on_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = tmp_path / "mountinfo"
    listing.write_text(f"1 1 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path}/share rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(mounts, "MOUNTS", listing)
    mounts.refuse_network(f"{tmp_path}/metadata.db")
    with pytest.raises(UsageError) as caught:
        mounts.refuse_network(f"{tmp_path}/share/metadata.db")
    assert caught.value.fields["type"] == "nfs4"


def test_without_a_list_of_mounts_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = tmp_path / "mountinfo"
    listing.write_text("1 1 0:1 / / rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(mounts, "MOUNTS", listing)
    with pytest.raises(UsageError):
        mounts.refuse_network("/anywhere")
    listing.unlink()
    mounts.refuse_network("/anywhere")
