"""What came of each scenario with each driver, kept for the table in the docs.

With `TURNKEEPER_RESULTS` naming a file, every result is a line in it; `scripts/conformance_page.py`
makes the page of them.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

VARIABLE = "TURNKEEPER_RESULTS"
Verdict = Literal["passes", "covered", "n/a", "fails"]


class Result(msgspec.Struct, frozen=True):
    case: str
    scenario: str
    verdict: Verdict
    note: str = ""


def record(result: Result) -> None:
    path = os.environ.get(VARIABLE)
    if path:
        with open(path, "ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
