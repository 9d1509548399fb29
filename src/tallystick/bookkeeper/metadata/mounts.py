"""Which file systems SQLite may not lie on: its locks and shared memory do not work between machines."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tallystick.errors import UsageError

NETWORK_TYPES = (
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs",
    "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "virtiofs",
)  # fmt: skip
MOUNTS = Path("/proc/self/mountinfo")


def refuse_network(path: str) -> None:
    """Raises UsageError when the file would lie on a network file system; passes where mounts cannot be listed."""
    if MOUNTS.exists():
        kind = filesystem_of(os.path.realpath(path), MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
        if kind in NETWORK_TYPES:
            raise UsageError(
                "sqlite:// needs a local disk; this folder is on a network file system", path=path, type=kind
            )


def filesystem_of(path: str, mountinfo: str) -> str:
    """Returns the type of the file system that holds ``path``: of the mount with the longest name, the last of equals.

    ``mountinfo``: lines of "id parent device root MOUNT-POINT options … - TYPE source options".
    """
    best, kind = "", ""
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]) if len(fields) > 4 else ""
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= len(best):
            best, kind = point, source.split(" ")[0]
    return kind
