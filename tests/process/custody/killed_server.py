"""A server that consumes one streaming process until it is killed: `killed_server.py DIR [end]`.

What it has consumed is the file DIR/got, so that bytes and position are stored in one write; what
it must say is the frames 1, 2, 3…, and which of them were taken is DIR/acked. It says `on` when it
has the process. With `end` it asks the agent to finish, and leaves when all is consumed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.process.custody.harness import Witness, agent, script
from turnkeeper.custody.client import Custodian

FRAME_BYTES = 150_000


def frame(number: int) -> bytes:
    return b"frame %d %s\n" % (number, b"y" * FRAME_BYTES)


class Consumer(Witness):
    def __init__(self, place: Path) -> None:
        super().__init__()
        self.got = os.open(place / "got", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.acked = os.open(place / "acked", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.said = len(os.pread(self.acked, 1 << 20, 0))
        self.on_frame_taken = asyncio.Event()

    def on_output(self, data: bytes, end: int) -> None:
        super().on_output(b"!", end)
        view = memoryview(data)
        while view:
            view = view[os.write(self.got, view) :]

    def on_taken(self, frame_id: str) -> None:
        if frame_id != "end":
            os.write(self.acked, b".")
        self.on_frame_taken.set()


async def main(place: Path, end: bool) -> None:
    custodian = Custodian(place / "custody", linger_s=0.05)
    consumer = Consumer(place)
    pos = os.fstat(consumer.got).st_size
    if custodian.list():
        hold = custodian.attach("p1", pos, consumer)
    else:
        argv = script("agent_streamer.py", str(place / "record"), str(place / "taken"))
        hold = custodian.spawn("p1", agent(*argv), consumer)
    await consumer.wait_output(b"!")
    print("on", flush=True)
    if end:
        hold.write(str(consumer.said), frame(consumer.said))
        hold.write("end", b"end\n")
        await consumer.wait_gone()
        assert consumer.of("exited") == [("exited", 0, None, "")]
        custodian.close()
        return
    number = consumer.said
    while True:  # the last one may have been taken without our knowing: it is said again
        hold.write(str(number), frame(number))
        await consumer.on_frame_taken.wait()
        consumer.on_frame_taken.clear()
        number += 1


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:] == ["end"]))
