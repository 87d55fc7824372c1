#!/usr/bin/env python3
"""A script for cron: `python examples/nightly.py [AGENT]` has one report written a day.

The server is found in TURNKEEPER_URL and TURNKEEPER_TOKEN. Run it as often as you like: the day is
the key, so a second call on the same day waits for the same report and prints it.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from turnkeeper import TurnkeeperError, events
from turnkeeper.client import SyncClient

TEXT = "Write the report for {day:%Y-%m-%d}."


def main(agent: str) -> int:
    day = datetime.now(UTC)
    with SyncClient() as client:
        # One session for all days. With a key it is made once, and found again after that.
        session = client.create_session(agent, id=f"nightly-{agent}", key="nightly")
        run = client.send(
            session.id,
            TEXT.format(day=day),
            key=f"report-{day:%Y-%m-%d}",
            priority="background",  # people who write to this session go first
            deadline_s=3600,
            wait_s=60,  # so long the server may be away; then this fails, and cron says so
        )
        report = "".join(e.data.text for e in run if isinstance(e.data, events.OutputText))
        outcome = run.wait()
    if outcome.kind != "completed":
        print(f"{outcome.kind}: {outcome.detail}", file=sys.stderr)
        return 1
    print(report, end="")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "demo"))
    except TurnkeeperError as refused:
        sys.exit(f"nightly: {refused}")
