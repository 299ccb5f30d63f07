"""The second set of tasks: the scripts and files in the repository of a printing house.

The first set is about one program and its vocabulary. Here no program is installed: the agent must know
which script does something, in which folder and with which option or variable it works, and which of
many files has an answer. Training and test tasks share neither wording nor values.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bench.warm.tasks.harbour_tasks import Family, Split, Wanted, contains_value, pick_choice
from bench.warm.tasks.harbour_world import World

SYSTEM = (
    "You work in the folder of the project Pressroom, with tool calls, one at a time. If a call fails,"
    " read its message and call again in another way. As soon as it is done, answer in one short"
    " sentence with what was asked for.\n"
    "The repository has scripts and files for binding, paper, prices, orders and proofs."
)
TITLES: Mapping[Split, Sequence[str]] = {
    "train": ("almanac", "atlas", "ballads", "cookery", "fables", "grammar", "herbal"),
    "test": ("hymnal", "letters", "lexicon", "memoirs", "sonnets", "travels", "voyages"),
}
PAPERS: Mapping[Split, Sequence[str]] = {
    "train": ("vellum", "laid", "wove", "blotting"),
    "test": ("tissue", "board", "marbled", "linen"),
}
READERS = ("Adler", "Bianchi", "Correa", "Dufour", "Ekman", "Farouk", "Grieve", "Hosoda", "Ilves",
           "Jurado", "Kessler", "Lambert", "Meyer", "Nardi")  # fmt: skip
CUSTOMERS: Mapping[Split, Sequence[str]] = {
    "train": ("Abbott", "Baker", "Carver"),
    "test": ("Dyer", "Fletcher", "Mason", "Turner"),
}


class PressFacts(NamedTuple):
    """The facts of a world."""

    pages: dict[str, int]
    sheets: dict[str, int]
    readers: dict[str, str]
    hours: tuple[tuple[str, int], ...]


@cache
def find_facts(seed: str) -> PressFacts:
    chance = random.Random(f"press {seed}")
    titles, papers = [*TITLES["train"], *TITLES["test"]], [*PAPERS["train"], *PAPERS["test"]]
    names = chance.sample(READERS, len(titles))
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
    return PressFacts(
        {one: chance.randrange(60, 900) for one in titles},
        {one: chance.randrange(100, 9_000) for one in papers},
        dict(zip(titles, names, strict=True)),
        tuple((day, chance.randrange(6, 12)) for day in days),
    )


# -- the repository

_HEAD = """import json, os, sys
from pathlib import Path
BOOKS = Path(os.environ["QUAY_BOOKS"])
args = sys.argv[1:]
def fail(text):
    print("error: " + text, file=sys.stderr)
    raise SystemExit(2)
"""
SCRIPTS: Mapping[str, str] = {
    "tools/bind.py": """
pages = json.loads((BOOKS / "pages.json").read_text())
if not args or args[0] not in pages:
    fail("usage: bind.py TITLE --mode MODE, with a title of: " + ", ".join(pages))
if args[1:] == ["--mode", "gilt"]:
    fail("there is no gold leaf; bind with --mode plain")
if args[1:] != ["--mode", "plain"]:
    fail("say how to bind: --mode plain or --mode gilt")
print(f"{args[0]}: bound, {pages[args[0]]} pages")
""",
    "store/count.py": """
sheets = json.loads((BOOKS / "sheets.json").read_text())
if Path.cwd().name != "store":
    fail("this works in the folder store alone")
if len(args) != 1 or args[0] not in sheets:
    fail("usage: count.py PAPER, with a paper of: " + ", ".join(sheets))
print(f"{args[0]}: {sheets[args[0]]} sheets")
""",
    "tools/price.py": """
if len(args) < 2 or not args[1].isdigit():
    fail("usage: price.py TITLE CROWNS [--commit]")
if args[2:] != ["--commit"]:
    print(f"{args[0]} would cost {args[1]} crowns; nothing is changed without --commit")
    raise SystemExit
with open(BOOKS / "prices.csv", "a") as book:
    book.write(f"{args[0]},{args[1]}\\n")
print(f"{args[0]} costs {args[1]} crowns now")
""",
    "tools/order.py": """
if os.environ.get("ORDER_DESK") != "local":
    fail("no desk: set the variable ORDER_DESK to local")
if len(args) != 5 or args[1] != "--copies" or args[3] != "--for" or not args[2].isdigit():
    fail("usage: order.py TITLE --copies N --for CUSTOMER")
with open(BOOKS / "orders.csv", "a") as book:
    book.write(f"{args[0]},{args[2]},{args[4]}\\n")
print(f"ordered: {args[2]} copies of {args[0]} for {args[4]}")
""",
}


def build_press(root: Path, seed: str) -> World:
    """Create the world in an empty folder."""
    shutil.rmtree(root, ignore_errors=True)
    world, true = World(root), find_facts(seed)
    for folder in ("tools", "store", "archive/ledgers", "archive/letters", "docs", "type"):
        (world.work / folder).mkdir(parents=True)
    world.books.mkdir()
    (world.root / "bin").mkdir()
    (world.books / "pages.json").write_text(json.dumps(true.pages))
    (world.books / "sheets.json").write_text(json.dumps(true.sheets))
    for name in ("prices.csv", "orders.csv"):
        (world.books / name).touch()
    for name, text in SCRIPTS.items():
        (world.work / name).write_text(f"{_HEAD}{text}")
    (world.work / "README.md").write_text(
        "# Pressroom\n\nScripts and papers of a printing house.\n"
    )
    readers = "".join(f"{title}: {name}\n" for title, name in true.readers.items())
    (world.work / "archive" / "ledgers" / "readers.txt").write_text(readers)
    for name in ("binders", "buyers", "cutters"):  # files that look as likely
        (world.work / "archive" / "ledgers" / f"{name}.txt").write_text("none: none\n")
    hours = "".join(f"{day}: from {hour}\n" for day, hour in true.hours)
    (world.work / "docs" / "hours.txt").write_text(hours)
    return world


# -- bind: an option that is always the same

BIND_ASKS: Mapping[Split, Sequence[str]] = {
    "train": (
        "Bind the book {title} and tell me how many pages it has.",
        "How many pages has {title} when it is bound?",
    ),
    "test": (
        "Please do the binding of {title}; I need its number of pages.",
        "{title} is to be bound. Report the page count.",
    ),
}


def make_bind(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    title = pick_choice(TITLES, split, n)
    wanted = {"title": title, "pages": str(find_facts(seed).pages[title])}
    return pick_choice(BIND_ASKS, split, n).format(title=title), wanted


def check_bind(wanted: Wanted, world: World, answer: str) -> bool:
    return contains_value(answer, wanted["pages"])


# -- stock: the folder in which a script works

STOCK_ASKS: Mapping[Split, Sequence[str]] = {
    "train": (
        "How many sheets of {paper} paper are there?",
        "Count the sheets of {paper} that we have.",
    ),
    "test": (
        "What is left of the {paper} paper? Give me the number of sheets.",
        "Check our stock of {paper}: how many sheets?",
    ),
}


def make_stock(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    paper = pick_choice(PAPERS, split, n)
    wanted = {"paper": paper, "sheets": str(find_facts(seed).sheets[paper])}
    return pick_choice(STOCK_ASKS, split, n).format(paper=paper), wanted


def check_stock(wanted: Wanted, world: World, answer: str) -> bool:
    return contains_value(answer, wanted["sheets"])


# -- price: an option without which nothing happens

PRICE_ASKS: Mapping[Split, Sequence[str]] = {
    "train": ("Set the price of {title} to {crowns} crowns.", "{title} costs {crowns} crowns now."),
    "test": (
        "From today on {title} is sold for {crowns} crowns; enter that.",
        "Change what {title} costs: {crowns} crowns.",
    ),
}


def make_price(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    wanted = {"title": pick_choice(TITLES, split, n), "crowns": str(chance.randrange(12, 90))}
    return pick_choice(PRICE_ASKS, split, n).format(**wanted), wanted


def check_price(wanted: Wanted, world: World, answer: str) -> bool:
    rows = list(csv.reader((world.books / "prices.csv").read_text().splitlines()))
    return rows == [[wanted["title"], wanted["crowns"]]]


# -- order: a variable that must be set

ORDER_ASKS: Mapping[Split, Sequence[str]] = {
    "train": (
        "Order {copies} copies of {title} for {customer}.",
        "{customer} wants {copies} copies of {title}; order them.",
    ),
    "test": (
        "Please enter an order by {customer}: {title}, {copies} copies.",
        "A new order, {copies} times {title}, goes to {customer}.",
    ),
}


def make_order(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    wanted = {
        "title": pick_choice(TITLES, split, n),
        "copies": str(chance.randrange(10, 99)),
        "customer": pick_choice(CUSTOMERS, split, n),
    }
    return pick_choice(ORDER_ASKS, split, n).format(**wanted), wanted


def check_order(wanted: Wanted, world: World, answer: str) -> bool:
    rows = list(csv.reader((world.books / "orders.csv").read_text().splitlines()))
    return rows == [[wanted["title"], wanted["copies"], wanted["customer"]]]


# -- proof: which of many files has the answer

PROOF_ASKS: Mapping[Split, Sequence[str]] = {
    "train": ("Who read the proofs of {title}?", "Find out who has read the proofs of {title}."),
    "test": (
        "Tell me the name of the reader of the proofs of {title}.",
        "The proofs of {title}: who was their reader?",
    ),
}


def make_proof(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    title = pick_choice(TITLES, split, n)
    wanted = {"title": title, "reader": find_facts(seed).readers[title]}
    return pick_choice(PROOF_ASKS, split, n).format(title=title), wanted


def check_proof(wanted: Wanted, world: World, answer: str) -> bool:
    return contains_value(answer, wanted["reader"])


# -- hours: plain files, without training tasks

HOUR_ASKS = (
    "write|Create the file docs/{name}.txt with this one line: {text}",
    "hour|From which hour are we open on {day}? The list is docs/hours.txt.",
)
SIGNS = (("closed", "Closed on Sunday."), ("quiet", "Silence at the press."), ("ink", "Wet ink."))


def make_hour(chance: random.Random, seed: str, split: Split, n: int) -> tuple[str, Wanted]:
    kind, ask = HOUR_ASKS[n % len(HOUR_ASKS)].split("|")
    hours = find_facts(seed).hours
    day, hour = hours[n // len(HOUR_ASKS) % len(hours)]
    name, text = SIGNS[n // len(HOUR_ASKS) % len(SIGNS)]
    wanted = {"kind": kind, "day": day, "hour": str(hour), "name": name, "text": text}
    return ask.format(**wanted), wanted


def check_hour(wanted: Wanted, world: World, answer: str) -> bool:
    if wanted["kind"] == "hour":
        return contains_value(answer, wanted["hour"])
    file = world.work / "docs" / f"{wanted['name']}.txt"
    return file.exists() and file.read_text().strip() == wanted["text"]


FAMILIES: Mapping[str, Family] = {
    "bind": Family(make_bind, check_bind),
    "stock": Family(make_stock, check_stock),
    "price": Family(make_price, check_price),
    "order": Family(make_order, check_order),
    "proof": Family(make_proof, check_proof),
    "hours": Family(make_hour, check_hour, splits=("test",)),
}
WAYS: Mapping[str, str] = {
    "bind": "python3 tools/bind.py {title} --mode plain",
    "stock": "cd store && python3 count.py {paper}",
    "price": "python3 tools/price.py {title} {crowns} --commit",
    "order": "ORDER_DESK=local python3 tools/order.py {title} --copies {copies} --for {customer}",
    "proof": "grep {title} archive/ledgers/readers.txt",
}
