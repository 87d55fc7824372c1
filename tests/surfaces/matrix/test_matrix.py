"""Every outcome and reason, produced by real runs, as every surface tells it: all from one table.

With `TURNKEEPER_RESULTS` naming a file, what was said is kept there, for `make outcomes`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from tests.surfaces.matrix.endings import ENDINGS, EVERY, Theatre, come_to, natively, theatre
from tests.surfaces.matrix.surfaces import SURFACES, Surface
from turnkeeper.core.outcome import Kind

Key = tuple[Kind, str]
LIVE = [
    pytest.param(surface, id=surface.name, marks=getattr(pytest.mark, surface.suite))
    for surface in SURFACES
    if surface.send is not None
]
WHERE = pytest.mark.parametrize("nodes", [False, True], ids=["one server", "nodes"])
LOOKED = [surface for surface in SURFACES if surface.look is not None]


def keep(surface: Surface, told: dict[Key, str]) -> None:
    """For the page; and whatever is not as it should be."""
    path = os.environ.get("TURNKEEPER_RESULTS")
    if path:
        with open(path, "ab") as file:
            for (kind, reason), said in told.items():
                file.write(msgspec.json.encode([surface.name, kind, reason, said]) + b"\n")
    wrong = {key: said for key, said in told.items() if said != surface.expected(*key)}
    assert wrong == {}, {key: surface.expected(*key) for key in wrong}


@pytest.mark.surfaces
def test_every_outcome_and_reason_has_a_way_to_come_about() -> None:
    assert set(ENDINGS) == set(EVERY)


@pytest.mark.surfaces
@pytest.mark.timeout(400)
@WHERE
def test_every_surface_that_can_be_asked_later_says_it_in_its_word(
    nodes: bool, tmp_path: Path
) -> None:
    async def look(stage: Theatre, told: dict[str, dict[Key, str]]) -> None:
        for key, ending in ENDINGS.items():
            if ending.nodes is not nodes:
                continue
            run, _ = await come_to(stage, ending, natively)
            for surface in LOOKED:
                assert surface.look is not None
                told[surface.name][key] = await surface.look(stage, run)

    async def main() -> dict[str, dict[Key, str]]:
        told: dict[str, dict[Key, str]] = {surface.name: {} for surface in LOOKED}
        async with theatre(tmp_path, nodes=nodes) as stage:
            await look(stage, told)
        return told

    told = asyncio.run(main())
    for surface in LOOKED:
        keep(surface, told[surface.name])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("surface", LIVE)
@WHERE
def test_whoever_sent_the_message_is_told_in_the_word_of_their_surface(
    surface: Surface, nodes: bool, tmp_path: Path
) -> None:
    async def main() -> dict[Key, str]:
        told = {}
        async with theatre(tmp_path, nodes=nodes) as stage:
            for key, ending in ENDINGS.items():
                if ending.nodes is nodes and not ending.needs_the_api:
                    assert surface.send is not None
                    _, told[key] = await come_to(stage, ending, surface.send)
        return told

    keep(surface, asyncio.run(main()))
