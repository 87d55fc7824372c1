"""A server that keeps one stubborn tree and then does nothing: `lone_server.py ROOT MARK ORPHAN_S`.

Started, and killed, by the tests."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.process.custody.harness import Witness, agent, script
from turnkeeper.custody.client import Custodian


async def main(root: str, mark: str, orphan_s: str) -> None:
    custodian = Custodian(Path(root), linger_s=0.05)
    witness = Witness()
    program = agent(*script("agent_tree.py", "all", mark), mark=mark, orphan_s=float(orphan_s))
    custodian.spawn("p1", program, witness)
    await witness.wait_output(b"up\n")
    print("up", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
