"""The table of settings in docs/config.md: `python -m tests.docs.settings` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

from rekindle.config import NAMED_SETTINGS, SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "config.md"
HEAD = "| setting | default | allowed | environment | what it is |\n|---|---|---|---|---|\n"
TABLE = re.compile(r"^\| setting \|.*?(?=^[^|])", re.M | re.S)


def table() -> str:
    """A row for every setting there is."""
    rows = [
        (
            f"`{one.name}`",
            f"`{one.format_value(one.default)}`",
            one.expected,
            f"`{one.env}`" if one.env else "",
            one.help,
        )
        for one in (*SETTINGS.values(), *NAMED_SETTINGS.values())
    ]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    written = table()
    PAGE.write_text(TABLE.sub(lambda _: written, text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
