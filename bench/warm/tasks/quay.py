"""quay: the books of a small harbour.

The program of the world that the tasks live in. It has its own words for everything, on purpose: a
model cannot know them, but can find them out by its messages, or be shown them by a past session.
It stands alone, so that it can be run from any folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WORK = Path(os.environ.get("QUAY_WORK", "."))
BOOKS = Path(os.environ.get("QUAY_BOOKS", "."))
KNOBS = ("tide.offset", "crane.pause", "lamp.delay", "gate.hold", "radio.timeout", "siren.gap")


def tag(text: str) -> str:
    if not re.fullmatch(r"B-\d{4}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a tag; tags are written like B-0007")
    return text


def day(text: str) -> str:
    found = re.fullmatch(r"(\d\d)([A-Z]{3})(\d\d)", text)
    if not found or found[2] not in MONTHS or not 1 <= int(found[1]) <= 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day; days are written like 09JAN24")
    return text


def turn(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or name not in KNOBS:
        known = ", ".join(KNOBS)
        raise argparse.ArgumentTypeError(f"{text!r} is not KNOB=VALUE with a knob of: {known}")
    if not re.fullmatch(r"\d+min", value):
        raise argparse.ArgumentTypeError(f"{value!r} is not a time; times are written like 5min")
    return name, value


USAGE = """usage:
  quay prove MODULE --lane LANE    run the tests of a module
  quay berth show TAG              look a berth up
  quay knob KNOB=VALUE [--write]   change a setting
  quay log --day DAY --say TEXT    file a note in the logbook
  quay load SHIP GOODS --kg N      book a load for a ship"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Which way is right, in few words: the whole program for an unknown verb."""
        way = USAGE if self.prog == "quay" else " ".join(self.format_usage().split())
        self.exit(2, f"{self.prog}: error: {message}\n{way}\n")

    def format_help(self) -> str:
        return f"{USAGE}\n" if self.prog == "quay" else super().format_help()


def parser() -> argparse.ArgumentParser:
    whole = Parser(prog="quay")
    verbs = whole.add_subparsers(dest="verb", metavar="VERB", required=True)
    prove = verbs.add_parser("prove", help="run the checks of a module")
    prove.add_argument("module")
    prove.add_argument("--lane", required=True, choices=("dry", "wet"), help="wet: on the water")
    berth = verbs.add_parser("berth", help="look a berth up").add_subparsers(
        dest="what", metavar="show", required=True
    )
    berth.add_parser("show", help="what is known of a berth").add_argument(
        "tag", type=tag, help="like B-0007"
    )
    knob = verbs.add_parser("knob", help="change a setting")
    knob.add_argument("turn", type=turn, metavar="KNOB=VALUE", help="like tide.offset=5min")
    knob.add_argument("--write", action="store_true", help="really; else it is only shown")
    log = verbs.add_parser("log", help="file a note in the logbook")
    log.add_argument("--day", type=day, required=True, help="like 09JAN24")
    log.add_argument("--say", required=True, metavar="TEXT", help="the note")
    load = verbs.add_parser("load", help="book a load for a ship")
    load.add_argument("ship", metavar="SHIP", help="in capitals")
    load.add_argument("goods")
    load.add_argument("--kg", type=int, required=True, help="whole kilograms")
    return whole


def fail(verb: str, text: str) -> NoReturn:
    print(f"quay {verb}: error: {text}", file=sys.stderr)
    raise SystemExit(2)


def prove(args: argparse.Namespace) -> None:
    source = WORK / "src" / f"{args.module}.py"
    checks = WORK / "checks" / f"{args.module}.chk"
    if not source.exists() or not checks.exists():
        fail("prove", f"no module {args.module!r}; give its name alone, like tides")
    if args.lane == "wet":
        fail("prove", "the wet lane needs a boat; use --lane dry")
    names: dict[str, object] = {}
    exec(compile(source.read_text(), str(source), "exec"), names)
    lines = [line for line in checks.read_text().splitlines() if line.strip()]
    held = sum(bool(eval(line, dict(names))) for line in lines)
    print(f"{args.module}: {held} held, {len(lines) - held} broke")


def berth(args: argparse.Namespace) -> None:
    known = json.loads((BOOKS / "berths.json").read_text())
    if args.tag not in known:
        fail("berth show", f"there is no berth {args.tag}")
    facts = known[args.tag]
    print(
        f"berth {args.tag}: ship {facts['ship']}, master {facts['master']}, draft {facts['draft']} m"
    )


def knob(args: argparse.Namespace) -> None:
    name, value = args.turn
    if not args.write:
        print(f"{name} would become {value}; nothing is changed without --write")
        return
    file = WORK / "etc" / "knobs"
    lines = [one for one in file.read_text().splitlines() if not one.startswith(f"{name} ")]
    file.write_text("\n".join([*lines, f"{name} {value}"]) + "\n")
    print(f"{name} is now {value}")


def log(args: argparse.Namespace) -> None:
    file = WORK / "logbook" / f"{args.day[2:]}.txt"
    file.parent.mkdir(exist_ok=True)
    with open(file, "a") as book:
        book.write(f"{args.day} {args.say}\n")
    print(f"filed under {args.day}")


def load(args: argparse.Namespace) -> None:
    ships = {facts["ship"] for facts in json.loads((BOOKS / "berths.json").read_text()).values()}
    if args.ship != args.ship.upper():
        fail("load", f"ships are written in capitals: {args.ship.upper()}")
    if args.ship not in {ship.upper() for ship in ships}:
        fail("load", f"no ship {args.ship} in the books")
    with open(BOOKS / "loads.csv", "a") as book:
        book.write(f"{args.ship},{args.goods.lower()},{args.kg}\n")
    print(f"booked {args.kg} kg of {args.goods} for {args.ship}")


if __name__ == "__main__":
    asked = parser().parse_args()
    {"prove": prove, "berth": berth, "knob": knob, "log": log, "load": load}[asked.verb](asked)
