"""Write a ledger and read it back. Start a cluster with `tally dev up` first. Prints::

0 one
1 two
2 three
"""

import asyncio

import tallystick
from tallystick.admin.dev import find_uri


async def main() -> None:
    async with tallystick.connect(find_uri()) as bk:
        writer = await bk.create_ledger(ensemble=3, write_quorum=2, ack_quorum=2)
        await writer.append_batch([b"one", b"two", b"three"])  # returns once two bookies have each on disk
        await writer.close()
        reader = await bk.open_ledger(writer.id)
        async for entry in reader.read(0, reader.last_entry):
            print(entry.id, entry.data.decode())


asyncio.run(main())
