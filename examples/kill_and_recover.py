"""Write a ledger in another process, kill that with SIGKILL, recover the ledger, compare. Prints::

the writer was killed
nothing that was acknowledged is lost
"""

import asyncio
import sys

import tallystick


async def write(uri: str) -> None:
    """Append for ever; print the ledger's id, and then the id of the newest entry that is safe."""
    async with tallystick.connect(uri) as bk:
        writer = await bk.create_ledger()
        print(writer.id, flush=True)
        while True:
            first = writer.lac + 1
            ids = await writer.append_batch([b"row %d" % row for row in range(first, first + 100)])
            print(ids[-1], flush=True)


async def main(uri: str) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, __file__, uri, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    ledger, acknowledged = int(await child.stdout.readline()), -1
    while acknowledged < 5000:
        acknowledged = int(await child.stdout.readline())
    child.kill()
    for line in (await child.stdout.read()).splitlines():  # what it could still say
        acknowledged = int(line)
    print("the writer was killed" if await child.wait() < 0 else "the writer ended by itself")

    # Fence it, find the last entry, close the ledger. From here on it never changes.
    async with tallystick.connect(uri) as bk, bk.open_ledger(ledger, recover=True) as reader:
        rows = [entry.data async for entry in reader]
    assert rows == [b"row %d" % row for row in range(len(rows))]
    print("nothing that was acknowledged is lost" if len(rows) > acknowledged else "entries are lost")


asyncio.run(write(sys.argv[1]) if len(sys.argv) > 1 else main(tallystick.find_cluster().uri))
