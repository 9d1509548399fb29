"""Files of secrets that Spark hands to its executors: never in plain bytes, and for the executor's account alone."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, overload

from tallystick.errors import UsageError
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.runtime.certificates import secret_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENCRYPTING = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.ssl.enabled")


def add_key_file(spark: SparkSession, path: str) -> str:
    """Have each executor get a file; what an option such as ``credentialsFile`` then names. Raises UsageError where
    there is no such file, executors on other machines would get it in plain bytes, or a session is Connect's."""
    context = getattr(spark, "_sc", None)
    if context is None:
        raise UsageError(
            "a session of Spark Connect hands no file to executors: put it on each machine, and name it with its path",
            path=path,
        )
    if "://" not in path and not os.path.isfile(path):
        raise UsageError("there is no such file", path=path)
    master, conf = context.master or "", context.getConf()
    is_here = master == "local" or master.startswith("local[")
    if not is_here and not any(str(conf.get(name, "false")).lower() == "true" for name in _ENCRYPTING):
        raise UsageError(
            "Spark would send this file in plain bytes: set spark.network.crypto.enabled=true, with "
            "spark.authenticate, or put the file on each machine",
            path=path,
        )
    context.addFile(path)
    return os.path.basename(path)


@overload
def key_file(name: str) -> str: ...


@overload
def key_file(name: None) -> None: ...


def key_file(name: str | None) -> str | None:
    """Returns the path of what an option names, where it is read: a name without a folder is that of a file that was
    added, if there is one. Spark makes those readable for everybody on the machine: this one is its account's alone."""
    if name is None or "/" in name:
        return name
    from pyspark import SparkFiles

    try:
        added = SparkFiles.get(name)
    except Exception:  # no executor, and no session either
        return name
    if not os.path.isfile(added):
        return name
    os.chmod(added, 0o600)
    return added


def password_in(path: str) -> bytes:
    """Returns the password in a file, whose line break at the end is none of it, and neither is a byte order mark.
    Raises UsageError, also for one that others may read."""
    try:
        changed_ns = os.stat(path).st_ctime_ns
    except OSError:
        changed_ns = 0  # which the reading says
    return _password(path, changed_ns)


@lru_cache(maxsize=64)  # it is asked for once a ledger
def _password(path: str, changed_ns: int) -> bytes:
    password = secret_bytes(path).removeprefix(BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
    if not password:  # who names a file wants a password
        raise UsageError("the password file is empty", path=path)
    return password


def security_here(security: BrokerSecurity | None) -> BrokerSecurity | None:
    """Returns the same with the paths that its files have in this process: an executor has added ones in a folder of
    its own."""
    if security is None:
        return None
    return replace(
        security,
        credentials_file=key_file(security.credentials_file),
        tls_ca_file=key_file(security.tls_ca_file),
        tls_cert_file=key_file(security.tls_cert_file),
        tls_key_file=key_file(security.tls_key_file),
    )
