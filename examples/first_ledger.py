"""Write a ledger and read it back. Start a cluster with `tally dev up` first. Prints::

0 one
1 two
2 three
"""

import asyncio

import tallystick


async def main() -> None:
    async with tallystick.connect(tallystick.find_cluster().uri) as bk:
        async with bk.create_ledger(ensemble=3, write_quorum=2, ack_quorum=2) as writer:
            await writer.append_batch([b"one", b"two", b"three"])  # returns once two bookies have each on disk
        async with bk.open_ledger(writer.id) as reader:
            async for entry in reader:
                print(entry.id, entry.data.decode())


asyncio.run(main())
