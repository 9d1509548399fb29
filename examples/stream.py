"""A stream outlives its owner: another client takes it over and goes on, and a cursor has every order once. Prints::

owned by the first: 3 orders
taken over: 3 more
the first is fenced
billing has read: order 0, order 1, order 2, order 3, order 4, order 5
billing is behind by 0 entries
"""

import asyncio

import tallystick
from tallystick.errors import StreamFenced

NAME = "examples/shop/persistent/orders"


async def main() -> None:
    uri = tallystick.find_cluster().uri
    async with tallystick.connect(uri) as one, tallystick.connect(uri) as other:
        old = await one.open_stream(NAME)
        for number in range(3):
            await old.append(b"order %d" % number, key="anna", producer="shop", sequence=number)
        print("owned by the first: 3 orders")

        # Nobody can know whether the old owner is dead or only slow: it is fenced first, then its ledger is closed.
        async with other.open_stream(NAME, takeover=True) as new:
            for number in range(2, 6):  # order 2 was acknowledged already: a repeat is stored once
                await new.append(b"order %d" % number, key="anna", producer="shop", sequence=number)
            print("taken over: 3 more")
            try:
                await old.append(b"too late")
            except StreamFenced:
                print("the first is fenced")

        async with other.cursor(NAME, "billing") as cursor:
            messages = await cursor.read(100)
            print("billing has read:", ", ".join(message.data.decode() for message in messages))
            await cursor.ack_up_to(messages[-1])
            print("billing is behind by", cursor.backlog, "entries")
        await other.delete_stream(NAME)


asyncio.run(main())
