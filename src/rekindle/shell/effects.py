"""The side effects of a command, and the arguments that the rules use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from .parser import ShellWord

GIT_VALUES = ("-C", "-c", "--git-dir", "--work-tree")  # options before the subcommand


class EffectLevel(IntEnum):
    """How far an effect reaches, and thus how it is handled."""

    EXTERNAL = 1  # others notice it: it may be described, but not shown as a call to repeat
    DESTRUCTIVE = 2  # it deletes something where that is allowed: never learned
    RISKY = 3  # it needs approval: never learned


class CommandEffect(NamedTuple):
    """What a command does beyond printing, and how far that reaches."""

    reason: str
    level: EffectLevel = EffectLevel.RISKY


class CommandArguments(NamedTuple):
    """The arguments of a program, with a check of the paths it may write to."""

    words: tuple[ShellWord, ...]
    is_inside: Callable[[ShellWord], bool]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @property
    def has_unknown(self) -> bool:
        return any(not word.known for word in self.words)

    @property
    def operands(self) -> tuple[ShellWord, ...]:
        """The arguments that are not options."""
        texts = self.texts
        end = texts.index("--") if "--" in texts else len(texts)
        before = [w for w in self.words[:end] if not (w.text.startswith("-") and w.text != "-")]
        return (*before, *self.words[end + 1 :])

    def has_option(self, letters: str, *names: str) -> bool:
        """Return whether one of these short options, or a long one (or its prefix), is given."""
        for text in self.texts:
            if text == "--":
                return False
            if text.startswith("--"):
                given = text.partition("=")[0]
                if any(name.startswith(given) and len(given) > 3 for name in names):
                    return True
            elif text.startswith("-") and any(letter in text[1:] for letter in letters):
                return True
        return False

    def list_subcommands(self, value_options: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the subcommands: the operands without the values of options that take one."""
        found: list[str] = []
        texts = iter(self.texts)
        for text in texts:
            if text in value_options:
                next(texts, None)
            elif not text.startswith("-"):
                found.append(text)
        return tuple(found)
