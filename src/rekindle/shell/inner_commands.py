"""Find the commands that a program runs: behind a wrapper, in its options, on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .effects import CommandArguments
from .parser import ShellWord
from .risk_rules import DATABASE_CLIENTS, RISK_RULES
from .wrappers import SHELLS, find_inner_program, get_basename

_NOTABLE_PROGRAMS = frozenset([*RISK_RULES, *SHELLS, *DATABASE_CLIENTS])
_REMOTE_RUNNERS = frozenset({"ssh", "docker", "podman", "kubectl", "nerdctl", "docker-compose"})


def iter_inner_commands(
    program: str, given: CommandArguments
) -> Iterator[tuple[ShellWord, ...] | str]:
    """Yield the commands that a program runs: as words, or as text for a shell."""
    if program in ("eval", "trap"):
        known = all(word.known for word in given.words)
        texts = given.texts if program == "eval" else given.texts[:1]
        yield " ".join(texts) if known else (ShellWord("", known=False),)
    elif program == "find":
        yield from _iter_find_actions(given.words)
    elif program == "source" or program == ".":
        if any(word.is_pipe for word in given.words):
            yield (ShellWord("", known=False),)
    elif program in _REMOTE_RUNNERS:
        yield from _iter_remote_commands(program, given)
    elif start := find_inner_program((program, *given.texts)):
        inner = given.words[start - 1 :]
        if program in ("xargs", "parallel"):
            yield (*_mark_placeholders(given.texts, inner), ShellWord("", known=False))
        elif program in ("watch", "script") and all(word.known for word in inner):
            yield " ".join(word.text for word in inner)
        else:
            yield inner
    yield from _iter_option_commands(program, given)


def _iter_option_commands(
    program: str, given: CommandArguments
) -> Iterator[tuple[ShellWord, ...] | str]:
    """Yield option values that are whole command lines."""
    flags = {"env": "-S", "su": "-c", "script": "-c", "runuser": "-c", "flock": "-c", "npx": "-c"}
    flag = flags.get(program)
    for number, word in enumerate(given.words):
        if flag is None:
            return
        if word.text == flag:
            for text in given.words[number + 1 :][:1]:
                yield text.text if text.known else (text,)
        elif program == "env" and word.text.startswith(("-S", "--split-string=")):
            yield word.text.removeprefix("--split-string=").removeprefix("-S")


def _mark_placeholders(options: Sequence[str], words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Mark words that contain a placeholder such as {} as unknown."""
    placeholders = {"{}"}
    for option, value in zip(options, (*options[1:], ""), strict=True):
        if option.startswith("-I"):
            placeholders.add(option[2:] or value)
    return tuple(
        ShellWord(w.text, w.known and not any(s in w.text for s in placeholders)) for w in words
    )


def _iter_find_actions(words: Sequence[ShellWord]) -> Iterator[tuple[ShellWord, ...]]:
    """Yield the actions that `find` takes on the files it finds."""
    for number, word in enumerate(words):
        if word.text == "-delete":
            yield (ShellWord("rm"), ShellWord("", known=False))
        elif word.text in ("-fprint", "-fprintf", "-fls"):
            yield (ShellWord("tee"), *words[number + 1 : number + 2])
        elif word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            inner: list[ShellWord] = []
            for each in words[number + 1 :]:
                if each.text in (";", "+"):
                    break
                inner.append(ShellWord(each.text, each.known and "{}" not in each.text))
            if inner:
                yield tuple(inner)


def _iter_remote_commands(
    program: str, given: CommandArguments
) -> Iterator[tuple[ShellWord, ...] | str]:
    """Yield commands for another machine or a container; they are judged as if run here."""
    words = list(given.words)
    if program == "ssh":
        while words and words[0].text.startswith("-"):
            del words[
                : 2
                if words[0].text[1:2] in "bcDeFIiJLlmOopQRSWw" and len(words[0].text) == 2
                else 1
            ]
        if len(words) > 1:
            known = all(word.known for word in words[1:])
            yield " ".join(w.text for w in words[1:]) if known else (ShellWord("", known=False),)
        return
    if start := find_inner_program((program, *given.texts)):
        yield given.words[start - 1 :]
    # With unknown options, or `run`, its position is a guess: the first word that is a program.
    texts = [word.text for word in words]
    for number, text in enumerate(texts):
        if text in ("exec", "run"):
            for start in range(number + 1, min(len(words), number + 15)):
                if get_basename(texts[start]) in _NOTABLE_PROGRAMS and not texts[start].startswith(
                    "-"
                ):
                    yield tuple(words[start:])
                    return
