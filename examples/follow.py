"""Follow a ledger while it is written; the tail ends when the writer closes. Prints::

tick 0
tick 1
tick 2
closed
"""

import asyncio

import tallystick


async def follow(uri: str, ledger: int) -> None:
    # A reader never fences: the writer does not notice.
    async with tallystick.connect(uri) as bk, bk.open_ledger(ledger) as reader:
        async for entry in reader.follow(0):
            print(entry.data.decode())
    print("closed")


async def main() -> None:
    uri = tallystick.find_cluster().uri
    async with tallystick.connect(uri) as bk:
        writer = await bk.create_ledger()
        following = asyncio.create_task(follow(uri, writer.id))
        for number in range(3):
            await writer.append(b"tick %d" % number)
        await writer.close()
        await following


asyncio.run(main())
