"""The keys of the picker as its footer and its help name them."""

from __future__ import annotations

# The last two are shown on any screen, the others as far as there is room.
FOOTER = (
    "Enter resume",
    "Tab {other}",
    "^F fork",
    "^S share",
    "^Y copy",
    "^R rename",
    "^X archive",
    "? help",
    "Esc quit",
)
HELP = """
Type to search titles and messages: words, "a phrase", a OR b.

Enter       resume the session in its own agent and folder
Tab, ^A     switch between this project and all projects
↑ ↓ PgUp PgDn   move
^F          fork: continue a copy, and keep the session as it is
^S          share: write a page without secrets
^Y          copy the command that resumes the session
^R          rename
^X, ^D      archive; ^Z brings it back
F1, ?       this help
Esc         clear the search, then quit

Everything here is a command too: rekindle --help
"""
