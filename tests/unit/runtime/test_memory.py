"""Memory that a process frees stays with it, but for that of a crowd which left; where the C library can be told so."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from contextlib import closing

import pytest

from support.machines import virtual_loop
from tallystick.runtime.memory import GIVE_BACK_BYTES, FreedMemory, LoadMemory

# Pages that a buffer of 200 KB touches when it is taken and freed again and again: all of them each time, or none.
PROGRAM = """
import resource
from tallystick.runtime.memory import keep_freed_memory
assert keep_freed_memory()
for _ in range(20):
    kept = [bytes(200_000) for _ in range(10)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    kept = [bytes(200_000) for _ in range(10)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


# Buffers of a crowd that grew side by side, each second of which goes: how many MB the process has less then.
CROWD = """
import asyncio, os
from pathlib import Path
from tallystick.runtime.memory import FreedMemory, keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

async def crowd():
    freed, buffers = FreedMemory(), [bytearray() for _ in range(400)]
    for _ in range(25):
        for buffer in buffers:
            buffer += bytes(10_000)
    before = resident()
    del buffers[::2]
    freed.freed(50_000_000)
    for _ in range(300):
        await asyncio.sleep(0.1)
        if resident() < before - 30:
            break
    print(before - resident())

keep_freed_memory()
asyncio.run(crowd())
"""

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library: nothing to tell it")


@needs_glibc
def test_freed_buffers_are_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 2000, "200 rounds of 10 buffers are 98,000 pages"


@needs_glibc
def test_what_a_crowd_had_goes_back_to_the_system() -> None:
    """Half a gigabyte stayed for ever behind peers whose frames had been bounded to half of that."""
    done = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) >= 30, "200 buffers of 250 kB were freed"


def test_memory_is_given_back_once_in_a_while_and_for_little_never() -> None:
    given_at = list[float]()

    async def crowds() -> None:
        freed = FreedMemory(lambda: given_at.append(asyncio.get_running_loop().time() - began))
        began = asyncio.get_running_loop().time()
        freed.freed(GIVE_BACK_BYTES - 1)
        await asyncio.sleep(20)
        assert not given_at
        for _ in range(20):
            freed.freed(GIVE_BACK_BYTES)
            await asyncio.sleep(1)
        freed.close()
        await asyncio.sleep(20)

    with closing(virtual_loop()) as loop:
        loop.run_until_complete(crowds())
    assert given_at == pytest.approx([21.0, 31.0])


def test_the_first_crowd_is_given_back_soon_though_the_server_has_just_begun() -> None:
    given_at = list[float]()

    async def crowd() -> None:
        began = asyncio.get_running_loop().time()
        freed = FreedMemory(lambda: given_at.append(asyncio.get_running_loop().time() - began))
        freed.freed(GIVE_BACK_BYTES)
        await asyncio.sleep(20)
        freed.freed(GIVE_BACK_BYTES - 1)  # what was given back does not count again
        await asyncio.sleep(20)

    with closing(virtual_loop()) as loop:
        loop.run_until_complete(crowd())
    assert given_at == pytest.approx([1.0])


def test_memory_of_a_load_is_given_back_once_it_is_over() -> None:
    """A bookie kept for ever what its tables had taken at the height of a load."""
    given_at, used_s = list[float](), [0.0]

    async def load() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        memory = LoadMemory(lambda: given_at.append(loop.time() - began), lambda: used_s[0])
        memory.start()
        await asyncio.sleep(15)  # the look at 10 s finds it at rest
        for _ in range(20):  # busy from 15 s to 35 s
            used_s[0] += 0.2
            await asyncio.sleep(1)
        await asyncio.sleep(100)
        used_s[0] += 5.0
        await asyncio.sleep(10)
        memory.close()
        await asyncio.sleep(50)

    with closing(virtual_loop()) as loop:
        loop.run_until_complete(load())
    assert given_at == pytest.approx([50.0])


def test_little_work_is_no_load() -> None:
    given_at, used_s = list[float](), [0.0]

    async def little() -> None:
        memory = LoadMemory(lambda: given_at.append(0.0), lambda: used_s[0])
        memory.start()
        for second in range(100):  # half of what counts, in every second interval of looks
            used_s[0] += 0.05 * (second // 10 % 2)
            await asyncio.sleep(1)
        memory.close()

    with closing(virtual_loop()) as loop:
        loop.run_until_complete(little())
    assert given_at == []


def test_a_load_that_could_not_be_given_back_is_not_the_last_one_that_is() -> None:
    """A thread too many, and a server kept from then on what its loads had taken."""
    tries, used_s, faults = list[float](), [0.0], list[object]()

    def give_back() -> None:
        tries.append(used_s[0])
        if len(tries) == 1:
            raise RuntimeError("can't start new thread")

    async def loads() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context["exception"]))
        memory = LoadMemory(give_back, lambda: used_s[0])
        memory.start()
        for _ in range(2):
            used_s[0] += 5.0
            await asyncio.sleep(40)
        memory.close()

    with closing(virtual_loop()) as loop:
        loop.run_until_complete(loads())
    assert tries == [5.0, 5.0, 10.0]  # the next look tries again, and the next load is given back too
    assert len(faults) == 1
