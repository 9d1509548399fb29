"""Where the driver listens for its tasks: a port beside Spark's own. A setting says where, and goes to every task.

Who connects says the token of the setting first. Spark gives it to the tasks of its context, and nobody else knows it.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystick.runtime.network import keep_alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class DriverPort:
    host: str
    port: int
    token: str

    @classmethod
    def parse(cls, setting: str | None) -> DriverPort | None:
        """Returns what a task reads in the setting, None if nothing is there."""
        host, _, rest = (setting or "").partition("|")
        port, _, token = rest.partition("|")
        return cls(host, int(port), token) if port.isdecimal() else None

    def setting(self) -> str:
        return f"{self.host}|{self.port}|{self.token}"

    def admits(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())


def listen(spark: SparkSession) -> tuple[socket.socket, DriverPort]:
    """Listen at an address of the driver that its executors reach, as Spark's settings have it.

    A task's host that is gone without a word ends its connections, which would keep streams owned.
    """
    conf = spark.sparkContext.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    listener = socket.create_server((conf.get("spark.driver.bindAddress") or host, 0))
    keep_alive(listener)
    return listener, DriverPort(host, listener.getsockname()[1], secrets.token_hex(16))
