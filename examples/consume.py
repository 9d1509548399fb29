"""Consume a topic: acknowledge, give back what failed, look at the lag, stop cleanly on SIGTERM. Needs a broker:
`tally dev up --brokers 1+1`. Prints::

order 3 failed and is given back
booked 5 orders, order 3 at attempt 2
lag 0
stopped
"""

import asyncio
import signal

import tallystick


def book(message: tallystick.ReceivedMessage) -> None:
    if message.body == b"order 3" and message.reconsume_times == 0:
        raise ConnectionError("try later")


async def main() -> None:
    async with tallystick.topics(tallystick.find_cluster().name_servers) as mq:
        await mq.producer("shop").send_batch("Bookings", [b"order %d" % number for number in range(5)])
        consumer = mq.consumer("bookings", "Bookings", start="first")
        closing: list[asyncio.Future[None]] = []
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, lambda: closing.append(asyncio.ensure_future(consumer.close()))
        )
        booked: dict[bytes, int] = {}
        async with consumer:  # commits and leaves the group at the end
            async for message in consumer:  # ends when the consumer is closed
                try:
                    book(message)
                except ConnectionError:
                    print(message.body.decode(), "failed and is given back")
                    consumer.nack(message, delay_s=0.1)  # comes again, perhaps to another member of the group
                    continue
                consumer.ack(message)  # else it is acknowledged when the loop asks for the next one
                booked[message.body] = message.reconsume_times + 1
                if len(booked) == 5:
                    print(f"booked 5 orders, order 3 at attempt {booked[b'order 3']}")
                    print("lag", (await consumer.lag()).total)
                    signal.raise_signal(signal.SIGTERM)  # as `kill` would
        print("stopped")


asyncio.run(main())
