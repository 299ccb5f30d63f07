"""Build pages from templates. Every value is escaped, whatever it contains."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rekindle import __version__
from rekindle.pages.plots import PLOT_STYLE
from rekindle.pages.style import BASE, THEME_TOKENS
from rekindle.pages.text import replace_surrogates
from rekindle.pages.transcript_style import MESSAGES, PROMPT_LIST
from rekindle.transcripts.export.common import format_cost, format_duration

STATIC_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
THEMES = ("", "light", "dark")


# Parts of the whole page: they may use what their template imports at its top.
_FRAME_BLOCKS = ("title", "styles", "scripts", "main", "keys")


class PageRenderer:
    """The templates of this package, with what they can call."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("rekindle.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters = cast(dict[str, Any], self._environment.filters)  # pyright: ignore[reportUnknownMemberType]
        filters.update(
            age=format_age,
            moment=format_moment,
            cost=format_cost,
            count=format_number,
            duration=format_duration,
            percent=format_percent,
            short=shorten_text,
        )
        names = cast(dict[str, Any], self._environment.globals)  # pyright: ignore[reportUnknownMemberType]
        names.update(version=__version__, themes=THEMES, static=_get_static_url, now=time.time)

    def render(self, template: str, values: Mapping[str, Any], block: str | None = None) -> str:
        """Render a template, or one block of it that stands alone."""
        page = self._environment.get_template(template)
        if block is None or block in _FRAME_BLOCKS or block not in page.blocks:
            return replace_surrogates(page.render(values))
        parts = page.blocks[block](page.new_context(dict(values)))
        return replace_surrogates("".join(parts))


@cache
def load_static_files() -> dict[str, bytes]:
    """Return the files that pages load, by name; the shared style is one of them."""
    found = {
        entry.name: entry.read_bytes()
        for entry in files("rekindle.web").joinpath("static").iterdir()
        if "." in entry.name
    }
    found["messages.css"] = f"{MESSAGES}\n{PROMPT_LIST}\n".encode()
    found["tokens.css"] = f"{THEME_TOKENS}\n{BASE}\n".encode()
    found["plots.css"] = f"{PLOT_STYLE}\n".encode()
    return found


def _get_static_url(name: str) -> str:
    """Return the address of a static file; it changes with its content."""
    digest = sha256(load_static_files()[name]).hexdigest()[:12]
    return f"/static/{name}?{digest}"


# -- filters


def format_age(seconds: float | None) -> Markup:
    """Say how long ago something was, with the exact time as a hint."""
    if seconds is None:
        return Markup("–")
    text = _describe_age(time.time() - seconds)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds"),
        format_moment(seconds),
        text,
    )


def _describe_age(age: float) -> str:
    if age < 0:
        return "in " + _describe_span(-age)
    return "now" if age < 60 else f"{_describe_span(age)} ago"


def _describe_span(seconds: float) -> str:
    for unit, length in (("y", 365 * 86400), ("mo", 30 * 86400), ("d", 86400), ("h", 3600)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds // 60)} min" if seconds >= 60 else f"{int(seconds)} s"


def format_moment(seconds: float | None) -> str:
    """Return a time in the machine's zone."""
    return "–" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def format_number(number: float | Decimal) -> str:
    """Return a number with its thousands apart, large ones shortened."""
    if number < 10_000:
        return f"{number:,.0f}"
    for suffix, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{float(number) / size:.3g}{suffix}"
    return f"{number:,.0f}"


def format_percent(rate: float | None) -> str:
    """Return a rate in percent, with a decimal if it is small."""
    if rate is None:
        return "–"
    return f"{rate:.1%}" if 0 < rate < 0.1 else f"{rate:.0%}"


def shorten_text(text: str, length: int) -> Markup:
    """Return a text on one line, with the full text as its tooltip."""
    line = " ".join(text.split())
    if len(line) <= length:
        return escape(line)
    return Markup('<span title="{}">{}…</span>').format(line[:1000], line[: length - 1])
