"""The tasks: six families, five of them with training tasks.

A check inspects the files and the answer, never the steps of the agent. Training and test tasks share
neither wording nor values.
"""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from bench.warm.tasks.harbour_world import SHIPS, World, find_facts

Split = Literal["train", "test"]
Wanted = Mapping[str, str]

TRAIN, TEST, UNSEEN = 6, 7, 10  # tasks of a family
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


class Task(NamedTuple):
    """A task; the check of its family compares with `wanted`."""

    id: str
    family: str
    split: Split
    ask: str
    wanted: Wanted

    def check(self, world: World, answer: str) -> bool:
        """Return whether the task is done."""
        return FAMILIES[self.family].check(self.wanted, world, answer)


Make = Callable[[random.Random, str, Split, int], tuple[str, Wanted]]


class Family(NamedTuple):
    """Tasks of one kind: how to generate and how to check them."""

    make: Make
    check: Callable[[Wanted, World, str], bool]
    splits: tuple[Split, ...] = ("train", "test")


def pick_choice(choices: Mapping[Split, Sequence[str]], split: Split, number: int) -> str:
    """Return the choices in turn, so that all of them occur."""
    return choices[split][number % len(choices[split])]


def contains_value(answer: str, value: str) -> bool:
    """Return whether the answer contains this word or number as a separate token."""
    return bool(re.search(rf"(?<![\w.]){re.escape(value)}(?![\w]|\.\d)", answer, re.IGNORECASE))


# -- prove: how tests are run here

PROVE_ASKS: Mapping[Split, Sequence[str]] = {
    "train": (
        "Run the tests of the module {module} and tell me how many pass.",
        "How many tests of {module} pass right now?",
        "Test the module {module}: how many tests succeed?",
    ),
    "test": (
        "Please test {module} and report the number of passing tests.",
        "I changed {module}; run its tests and say how many are fine.",
        "Are the tests of {module} green? Give me the number that pass.",
    ),
}
PROVE_MODULES: Mapping[Split, Sequence[str]] = {
    "train": ("tides", "berths", "cranes", "lamps", "gates"),
    "test": ("ropes", "pilots", "tariffs", "buoys"),
}


def make_prove(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    true = find_facts(seed)
    module = pick_choice(PROVE_MODULES, split, n)
    wanted = {"module": module, "held": str(true.held[module])}
    return pick_choice(PROVE_ASKS, split, n).format(module=module), wanted


def check_prove(wanted: Wanted, world: World, answer: str) -> bool:
    return contains_value(answer, wanted["held"])


# -- berth: how a record is looked up

BERTH_ASKS: Mapping[Split, Sequence[str]] = {
    "train": (
        "ship|Which ship lies at berth {number}?",
        "master|Who is the master of the ship at berth {number}?",
        "draft|What is the draft of the ship at berth {number}?",
    ),
    "test": (
        "ship|Look up berth {number}: what is the name of the ship there?",
        "master|Tell me the name of the master for berth {number}.",
        "draft|How many metres is the draft at berth {number}?",
    ),
}


def make_berth(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    true = find_facts(seed)
    field, ask = pick_choice(BERTH_ASKS, split, n).split("|")
    tag = chance.choice(sorted(true.berths))
    number = str(int(tag.removeprefix("B-")))
    return ask.format(number=number), {"tag": tag, "value": true.berths[tag][field]}


def check_berth(wanted: Wanted, world: World, answer: str) -> bool:
    return contains_value(answer, wanted["value"])


# -- knob: where settings are, and how they are written

KNOB_ASKS: Mapping[Split, Sequence[str]] = {
    "train": (
        "Set the {knob} to {minutes} minutes.",
        "Change the setting {knob} to {minutes} minutes.",
    ),
    "test": (
        "The {knob} should be {minutes} minutes from now on; change the setting.",
        "Adjust the {knob}: {minutes} minutes.",
    ),
}
KNOBS: Mapping[Split, Sequence[str]] = {
    "train": ("tide offset", "crane pause", "lamp delay"),
    "test": ("gate hold", "radio timeout", "siren gap"),
}


def make_knob(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    knob, minutes = pick_choice(KNOBS, split, n), str(chance.randrange(6, 59))
    ask = pick_choice(KNOB_ASKS, split, n // 2).format(knob=knob, minutes=minutes)
    return ask, {"knob": knob.replace(" ", "."), "value": f"{minutes}min"}


def check_knob(wanted: Wanted, world: World, answer: str) -> bool:
    lines = (world.work / "etc" / "knobs").read_text().splitlines()
    return lines == [f"{wanted['knob']} {wanted['value']}"]


# -- log: how notes are filed, and how days are written

LOG_ASKS: Mapping[Split, Sequence[str]] = {
    "train": (
        "File a note for {day}: {note}",
        "Put a note into the logbook for {day}: {note}",
    ),
    "test": (
        "Write this note in the log, dated {day}: {note}",
        "Add to the logbook, under {day}: {note}",
    ),
}
NOTES: Mapping[Split, Sequence[str]] = {
    "train": (
        "crane 4 is out of service",
        "north gate painted",
        "two ropes replaced",
        "pilot boat back at six",
        "fog until noon",
        "new lamp at the pier",
    ),
    "test": (
        "south buoy drifts",
        "oil found at the slip",
        "siren tested twice",
        "ice on the ladder",
        "ferry came late",
        "radio mast repaired",
        "gulls nest on crane 2",
        "water pump serviced",
        "east wall has a crack",
        "customs office closed",
    ),
}


def make_log(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    number, month, year = (
        chance.randrange(1, 29),
        chance.randrange(12),
        chance.randrange(2022, 2027),
    )
    note = pick_choice(NOTES, split, n)
    ask = pick_choice(LOG_ASKS, split, n).format(day=f"{number} {MONTHS[month]} {year}", note=note)
    return ask, {"day": f"{number:02}{MONTHS[month][:3].upper()}{year % 100:02}", "note": note}


def check_log(wanted: Wanted, world: World, answer: str) -> bool:
    file = world.work / "logbook" / f"{wanted['day'][2:]}.txt"
    if not file.exists():
        return False
    lines = [line.rstrip(" .").lower() for line in file.read_text().splitlines()]
    return lines == [f"{wanted['day']} {wanted['note']}".lower()]


# -- load: units, and how ships are named

LOAD_ASKS: Mapping[Split, Sequence[str]] = {
    "train": (
        "Book {tonnes} tonnes of {goods} for the {ship}.",
        "The ship {ship} takes {tonnes} tonnes of {goods}; book it.",
    ),
    "test": (
        "Please register a load of {tonnes} tonnes of {goods} for the ship {ship}.",
        "{ship} is to carry {tonnes} tonnes of {goods}; enter this load.",
    ),
}
GOODS: Mapping[Split, Sequence[str]] = {
    "train": ("salt", "timber", "wool", "coal"),
    "test": ("barley", "copper", "cork", "slate", "sugar"),
}
LOADED: Mapping[Split, Sequence[str]] = {"train": SHIPS[:13], "test": SHIPS[13:]}


def make_load(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    goods, ship = pick_choice(GOODS, split, n), chance.choice(LOADED[split])
    tenths = chance.randrange(12, 95)
    ask = pick_choice(LOAD_ASKS, split, n).format(tonnes=f"{tenths / 10:g}", goods=goods, ship=ship)
    return ask, {"ship": ship.upper(), "goods": goods, "kg": str(tenths * 100)}


def check_load(wanted: Wanted, world: World, answer: str) -> bool:
    rows = list(csv.reader((world.books / "loads.csv").read_text().splitlines()))
    return rows == [[wanted["ship"], wanted["goods"], wanted["kg"]]]


# -- papers: plain files, without training tasks

PAPER_ASKS = (
    "write|Create the file docs/{name}.txt with this one line: {text}",
    "price|In docs/prices.txt change the price of {item} to {price}.",
    "phone|What is the phone number of {crew}? The list is docs/crew.txt.",
)
PAPERS = ("sign", "menu", "rules", "thanks")
LINES = ("Closed on Sunday.", "Soup and bread.", "No fires on deck.", "Well done, all of you.")


def make_paper(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    true = find_facts(seed)
    kind, ask = PAPER_ASKS[n % len(PAPER_ASKS)].split("|")
    place = n // len(PAPER_ASKS) % len(PAPERS)
    item, price = chance.choice(true.prices)
    crew, phone = sorted(true.crew)[2 * place]
    wanted = {
        "kind": kind,
        "name": PAPERS[place],
        "text": LINES[place],
        "item": item,
        "price": str(price + chance.randrange(1, 9)),
        "crew": crew,
        "phone": str(phone),
    }
    return ask.format(**wanted), wanted


def check_paper(wanted: Wanted, world: World, answer: str) -> bool:
    docs = world.work / "docs"
    if wanted["kind"] == "phone":
        return contains_value(answer, wanted["phone"])
    if wanted["kind"] == "write":
        file = docs / f"{wanted['name']}.txt"
        return file.exists() and file.read_text().strip() == wanted["text"]
    lines = (docs / "prices.txt").read_text().splitlines()
    changed = [line for line in lines if line.startswith(f"{wanted['item']} ")]
    return len(lines) == 6 and changed == [f"{wanted['item']} = {wanted['price']}"]


FAMILIES: Mapping[str, Family] = {
    "prove": Family(make_prove, check_prove),
    "berth": Family(make_berth, check_berth),
    "knob": Family(make_knob, check_knob),
    "log": Family(make_log, check_log),
    "load": Family(make_load, check_load),
    "papers": Family(make_paper, check_paper, splits=("test",)),
}


def list_tasks(split: Split, families: Mapping[str, Family] = FAMILIES) -> list[Task]:
    """Return all training or all test tasks, alternating between the families."""
    count = {"train": TRAIN, "test": TEST}[split]
    known = [name for name, family in families.items() if split in family.splits]
    numbers = [(n, name) for n in range(max(count, UNSEEN)) for name in known]
    return [
        _make_task(name, families[name], split, n)
        for n, name in numbers
        if n < (count if "train" in families[name].splits else UNSEEN)
    ]


def _make_task(name: str, family: Family, split: Split, number: int) -> Task:
    id = f"{name}-{split}-{number:02}"
    ask, wanted = family.make(random.Random(id), id, split, number)
    return Task(id, name, split, ask, wanted)
