"""The world of a task: a small code base, documents, and the harbour's own program.

Everything depends only on the task's id, so that each arm gets the same world. The agent works in
`work`; the program's books are next to it, out of reach of the file tools.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(__file__).with_name("quay.py")
MODULES = ("tides", "berths", "cranes", "lamps", "gates", "ropes", "pilots", "tariffs", "buoys")
SHIPS = (
    "Marigold", "Petrel", "Sorrel", "Anchovy", "Bramble", "Cormorant", "Dogstar", "Evening",
    "Fulmar", "Gannet", "Heron", "Iris", "Juniper", "Kittiwake", "Larkspur", "Mistral", "Nettle",
    "Osprey", "Puffin", "Quartz", "Rowan", "Sandpiper", "Thistle", "Umber", "Verbena", "Willow",
)  # fmt: skip
MASTERS = (
    "Adeyemi", "Brandt", "Castillo", "Duarte", "Eriksen", "Ferrante", "Goto", "Haddad", "Ivanov",
    "Jansen", "Kowalski", "Lindqvist", "Moreau", "Novak", "Okafor", "Pereira", "Quint", "Rossi",
    "Sato", "Tanaka", "Ueda", "Vargas", "Weber", "Yilmaz", "Zeller", "Abara",
)  # fmt: skip
CREW = ("Anna", "Bo", "Carla", "Dmitri", "Elif", "Femi", "Greta", "Hugo", "Ines", "Jonas")
PRICES = ("rope", "tar", "oil", "paint", "sail", "nails", "soap", "tea")


class World(NamedTuple):
    """The folders of a world."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def books(self) -> Path:
        return self.root / "books"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.work),
            "LANG": "C.UTF-8",
            "QUAY_WORK": str(self.work),
            "QUAY_BOOKS": str(self.books),
        }


class HarbourFacts(NamedTuple):
    """The facts of a world, for tasks and checks."""

    berths: dict[str, dict[str, str]]
    held: dict[str, int]
    broke: dict[str, int]
    crew: tuple[tuple[str, int], ...]
    prices: tuple[tuple[str, int], ...]


@cache
def find_facts(seed: str) -> HarbourFacts:
    chance = random.Random(f"world {seed}")
    numbers = chance.sample(range(3, 980), len(SHIPS))
    masters = chance.sample(MASTERS, len(MASTERS))
    berths = {
        f"B-{number:04}": {
            "ship": ship,
            "master": master,
            "draft": f"{chance.randrange(21, 98) / 10:.1f}",
        }
        for number, ship, master in zip(numbers, SHIPS, masters, strict=True)
    }
    held = {module: chance.randrange(11, 40) for module in MODULES}
    broke = {module: chance.randrange(1, 9) for module in MODULES}
    crew = tuple((name, chance.randrange(200, 999)) for name in chance.sample(CREW, len(CREW)))
    prices = tuple((name, chance.randrange(3, 90)) for name in chance.sample(PRICES, 6))
    return HarbourFacts(berths, held, broke, crew, prices)


def build_harbour(root: Path, seed: str) -> World:
    """Create the world in an empty folder."""
    shutil.rmtree(root, ignore_errors=True)
    world, true = World(root), find_facts(seed)
    for folder in ("src", "checks", "etc", "docs"):
        (world.work / folder).mkdir(parents=True)
    world.books.mkdir()
    (world.books / "berths.json").write_text(json.dumps(true.berths, indent=1))
    (world.books / "loads.csv").touch()
    (world.work / "etc" / "knobs").touch()
    (world.work / "README.md").write_text(
        "# Quayside\n\nThe harbour's code (`src`), its checks, papers (`docs`).\n"
    )
    _write_code(world, true, random.Random(f"code {seed}"))
    crew = "".join(f"{name}: phone {number}\n" for name, number in true.crew)
    (world.work / "docs" / "crew.txt").write_text(crew)
    prices = "".join(f"{name} = {price}\n" for name, price in true.prices)
    (world.work / "docs" / "prices.txt").write_text(prices)
    _write_program(world)
    return world


def _write_code(world: World, true: HarbourFacts, chance: random.Random) -> None:
    for module in MODULES:
        slope, start = chance.randrange(2, 9), chance.randrange(1, 20)
        (world.work / "src" / f"{module}.py").write_text(
            f'"""The {module} of the harbour."""\n\n\n'
            f"def level(hour):\n    return {slope} * hour + {start}\n"
        )
        right = [f"level({n}) == {slope * n + start}" for n in range(true.held[module])]
        wrong = [
            f"level({n}) == {slope * n + start + 1}" for n in range(50, 50 + true.broke[module])
        ]
        lines = chance.sample(right + wrong, len(right) + len(wrong))
        (world.work / "checks" / f"{module}.chk").write_text("\n".join(lines) + "\n")


def _write_program(world: World) -> None:
    folder = world.root / "bin"
    folder.mkdir()
    script = folder / "quay"
    script.write_text(f"#!{sys.executable} -IS\n{PROGRAM.read_text()}")
    os.chmod(script, 0o755)
