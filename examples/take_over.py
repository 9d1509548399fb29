"""A writer falls silent; another client recovers its ledger, loses nothing, and goes on in a new one. Prints::

the successor found 100 entries
the old writer is fenced
"""

import asyncio

import tallystick
from tallystick.errors import LedgerFenced


async def main() -> None:
    uri = tallystick.find_cluster().uri
    async with tallystick.connect(uri) as old, tallystick.connect(uri) as new:
        writer = await old.create_ledger()
        await writer.append_batch([b"row %d" % number for number in range(100)])

        # Nobody can know whether the old writer is dead or only slow: recovery fences it first, then closes its ledger.
        recovered = await new.open_ledger(writer.id, recover=True)
        print(f"the successor found {recovered.last_entry + 1} entries")
        successor = await new.create_ledger()
        await successor.append(b"row 100")
        await successor.close()

        try:
            await writer.append(b"too late")
        except LedgerFenced:
            print("the old writer is fenced")


asyncio.run(main())
