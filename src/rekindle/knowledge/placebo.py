"""General statements for the placebo arm of an experiment: as long as notes, about no project."""

from __future__ import annotations

from .tokens import estimate_text_tokens

HEADING = "General notes:"
_STATEMENTS = (
    "A program ends with an exit code; 0 means that it succeeded.",
    "A commit records a snapshot of the files of a repository.",
    "Text files are stored as bytes; UTF-8 is the usual encoding.",
    "A test checks one behaviour and reports whether it holds.",
    "A compiler translates source code into a form that a machine can run.",
    "A branch is a name for a line of development.",
    "Standard output and standard error are two separate streams.",
    "A linter reports code that is correct but doubtful.",
    "A cache keeps results so that they need not be computed again.",
    "Relative paths start at the current folder, absolute ones at the root.",
    "A dependency is code that another program needs.",
    "An environment variable is a named value that programs inherit.",
    "A stack trace lists the calls that led to an error.",
    "A formatter changes the layout of code and not its meaning.",
    "A schema describes the fields that a record may have.",
    "A process has an identifier, a working folder and open files.",
    "A merge combines two lines of development.",
    "A package manager installs dependencies and records their versions.",
    "An index makes a search faster and a change slower.",
    "A time zone matters when times are shown, not when they are stored.",
)


def render_placebo(tokens: int, seed: int) -> str:
    """Return general statements of about so many tokens; the seed decides where they begin."""
    lines = [HEADING]
    while estimate_text_tokens("\n".join(lines)) < tokens:
        lines.append(f"- {_STATEMENTS[(seed + len(lines)) % len(_STATEMENTS)]}")
    return "\n".join(lines)
