"""What the templates of these pages call."""

from __future__ import annotations

from rekindle.pages.plots import render_sparkline
from rekindle.projects import shorten_project
from rekindle.web.addresses import build_project_url, build_session_url

from .note_text import KIND_NAMES, format_day, mark_code

PAGE_TOOLS = {
    "project_url": build_project_url,
    "session_url": build_session_url,
    "shorten_project": shorten_project,
    "sparkline": render_sparkline,
    "mark_code": mark_code,
    "format_day": format_day,
    "kinds": KIND_NAMES,
}
