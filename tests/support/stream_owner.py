"""The owner of a stream in a process of its own: it appends numbers until it is killed, or says what ended it.

Usage: ``python stream_owner.py URI STREAM LEASE_S WIRE``. Each line of its output is the position of the next number,
once it is stored; the last one may be the name of an error.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

import tallystick
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.errors import TallyError

PRODUCER = "owner"  # its sequence numbers are the numbers
SETTINGS = StreamSettings(max_entries_per_ledger=20)


async def own(uri: str, name: str, lease_s: float, wire: str) -> None:
    streams = StreamClientSettings(lease_s=lease_s, owner="in a process", stream=SETTINGS)
    async with tallystick.connect(uri, settings=ClientSettings(wire=wire), streams=streams) as bk:
        try:
            stream = await bk.open_stream(name)
            for number in itertools.count():
                position = await stream.append(b"%d" % number, producer=PRODUCER, sequence=number)
                print(position, flush=True)
        except TallyError as error:
            print(type(error).__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(own(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]))
