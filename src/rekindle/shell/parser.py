"""Takes a command line apart into every simple command that a shell would run.

Quotes, escapes, pipes, lists, groups, loops, substitutions at any depth, redirections and
here-documents are understood. What goes further (functions, `case`, arrays) is refused rather than
guessed: the caller treats a line that cannot be read as dangerous. Nothing is expanded; a word
whose value only the shell will know is marked so.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LONGEST = 100_000
_DEEPEST = 25
_BLANK = " \t"
_META = " \t\n;&|()<>"
# They may stand before a command, or between commands, and run nothing themselves.
_LEADING = frozenset(["if", "then", "else", "elif", "while", "until", "do", "!", "{"])
_ENDING = frozenset(["fi", "done", "}"])
_INTRICATE = frozenset(["case", "esac", "select", "function", "coproc"])
# A line that goes on in the middle of a word can hide what the shell makes of it.
_BROKEN_WORD = re.compile(r"[^\s\\]\\\n")


class Unreadable(Exception):
    """The line is not one that can be taken apart."""


class Word(NamedTuple):
    """One word without its quotes. `known` is False when its value depends on an expansion."""

    text: str
    known: bool = True
    runs: bool = False  # it is the name of a pipe to a command, as in <(…)


class Redirect(NamedTuple):
    """Where input or output goes: the operator, and its target or the text of a here-document."""

    operator: str
    target: Word


class Command(NamedTuple):
    """One simple command, what stands before it (`|`, `&&`, …), and its redirections."""

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()
    joint: str = ""
    assigned: tuple[Word, ...] = ()  # NAME=value in front of it


def split(line: str, depth: int = 0) -> tuple[Command, ...]:
    """Every simple command of a line, at whatever depth it stands; Unreadable if one could be missed."""
    if len(line) > _LONGEST or depth > _DEEPEST:
        raise Unreadable("too long or too deep")
    if any(char < " " and char not in "\t\n" for char in line) or "\x7f" in line:
        raise Unreadable("control characters")
    if _BROKEN_WORD.search(line):
        raise Unreadable("a word over two lines")
    reader = _Reader(line, depth)
    reader.read_list(None)
    if reader.awaited:
        raise Unreadable("a here-document without its text")
    return tuple(reader.commands)


class _Reader:
    def __init__(self, line: str, depth: int) -> None:
        self.line = line
        self.depth = depth
        self.at = 0
        self.commands: list[Command] = []
        self.awaited: list[
            tuple[int, str, bool, bool]
        ] = []  # here-documents: whose, up to, quoted, -

    def peek(self, length: int = 1) -> str:
        return self.line[self.at : self.at + length]

    def take(self, *texts: str) -> str | None:
        for text in texts:
            if self.line.startswith(text, self.at):
                self.at += len(text)
                return text
        return None

    # -- lists of commands

    def read_list(self, closing: str | None) -> None:
        """Read commands up to the end of the line, or up to the bracket that closes the list."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unreadable("too deep")
        if closing and self.awaited:
            raise Unreadable("a here-document around brackets")
        joint = ""
        while True:
            self.skip_blanks()
            if self.at >= len(self.line):
                if closing:
                    raise Unreadable(f"{closing} is missing")
                break
            if sign := self.take("\n"):
                self.read_documents()
            elif closing and self.take(closing):
                break
            elif sign := self.take("&&", "||", "|&", "|", ";;", ";", "&"):
                if sign == ";;":
                    raise Unreadable("case")
            else:
                self.read_command(joint)
                joint = ""
                continue
            joint = {"\n": ";", "|&": "|", None: ""}.get(sign, sign or "")
        if closing and self.awaited:
            raise Unreadable("a here-document without its text")
        self.depth -= 1

    def skip_blanks(self) -> None:
        while self.at < len(self.line):
            if self.peek() in _BLANK:
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            elif self.peek() == "#":
                end = self.line.find("\n", self.at)
                self.at = len(self.line) if end < 0 else end
            else:
                return

    def read_command(self, joint: str) -> None:
        """One simple command, or a group in brackets with the redirections after it."""
        if self.peek(2) == "((":
            raise Unreadable("arithmetic")
        if self.take("("):
            self.read_list(")")
            self.read_words(joint, group=True)
        elif self.peek() == ")":
            raise Unreadable("a bracket too many")
        else:
            self.read_words(joint, group=False)

    def read_words(self, joint: str, *, group: bool) -> None:
        words: list[Word] = []
        assigned: list[Word] = []
        redirects: list[Redirect] = []
        looped = False  # `for x in …`: words, but no command
        place = len(self.commands)
        self.commands.append(Command(()))  # keeps the place for here-documents
        while True:
            self.skip_blanks_in_command()
            if self.at >= len(self.line) or (self.peek() in "\n;&|)" and self.peek(2) != "&>"):
                break
            if redirect := self.read_redirect(place):
                redirects.append(redirect)
                continue
            if self.peek() == "(":
                raise Unreadable("a function or an array")
            start = self.at
            word = self.read_word()
            raw = self.line[start : self.at]
            if group:
                if raw in _LEADING | _ENDING and not words:
                    continue
                raise Unreadable("a word after a bracket")
            if not words and not looped:
                if raw in _INTRICATE:
                    raise Unreadable(raw)
                if raw in _LEADING or raw in _ENDING:
                    continue
                if raw == "[[":
                    self.skip_test()
                    continue
                if raw == "for":
                    looped = True
                    continue
                if _is_assignment(raw):
                    assigned.append(word)
                    continue
            words.append(word)
        self.commands[place] = Command(
            () if looped else tuple(words), tuple(redirects), joint, tuple(assigned)
        )

    def skip_blanks_in_command(self) -> None:
        while self.peek() in (" ", "\t") or self.peek(2) == "\\\n":
            self.at += 2 if self.peek() == "\\" else 1
        if self.peek() == "#":
            self.skip_blanks()

    def skip_test(self) -> None:
        """The inside of [[ … ]]: words with signs between them; only substitutions run something."""
        while True:
            while self.peek() in (" ", "\t", "\n", "&", "|", "<", ">", "(", ")"):
                if self.peek(2) in ("<(", ">("):
                    break
                self.at += 1
            start = self.at
            self.read_word()
            if self.at == start:
                raise Unreadable("[[ without ]]")
            if self.line[start : self.at] == "]]":
                return

    # -- redirections

    def read_redirect(self, place: int) -> Redirect | None:
        start = self.at
        while self.peek().isdigit():
            self.at += 1
        if self.at > start and self.peek() not in ("<", ">"):
            self.at = start
            return None
        if self.peek(2) in ("<(", ">(") and self.at == start:
            return None  # a word that names a pipe
        operator = self.take(
            "&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">"
        )
        if operator is None:
            self.at = start
            return None
        self.skip_blanks_in_command()
        if self.at >= len(self.line) or self.peek() in "\n;&|)":
            raise Unreadable("a redirection to nowhere")
        begin = self.at
        target = self.read_word()
        if self.at == begin:
            raise Unreadable("a redirection to nowhere")
        if operator in ("<<", "<<-"):
            if not target.known:
                raise Unreadable("a here-document with an odd end")
            raw = self.line[begin : self.at]
            quoted = any(char in raw for char in "'\"\\")
            self.awaited.append((place, target.text, quoted, operator == "<<-"))
            return Redirect(f"<<{len(self.awaited) - 1}", target)
        return Redirect(operator, target)

    def read_documents(self) -> None:
        """The texts of the here-documents that this line announced."""
        awaited, self.awaited = self.awaited, []
        for number, (place, tag, quoted, tabs) in enumerate(awaited):
            lines: list[str] = []
            while True:
                if self.at >= len(self.line):
                    raise Unreadable(f"the here-document {tag} does not end")
                end = self.line.find("\n", self.at)
                end = len(self.line) if end < 0 else end
                text = self.line[self.at : end]
                self.at = min(end + 1, len(self.line))
                text = text.lstrip("\t") if tabs else text
                if text == tag:
                    break
                lines.append(text)
            body = "\n".join(lines)
            known = True if quoted else self.expanded(body)
            self.give(place, number, Word(body, known))

    def give(self, place: int, number: int, body: Word) -> None:
        command = self.commands[place]
        redirects = [
            Redirect("<<", body) if one.operator == f"<<{number}" else one
            for one in command.redirects
        ]
        self.commands[place] = command._replace(redirects=tuple(redirects))

    def expanded(self, body: str) -> bool:
        """Find the commands in a text that the shell expands; is it what it looks like?"""
        inner = _Reader(body, self.depth)
        known = inner.read_quoted(None).known
        self.commands += inner.commands
        return known

    # -- words

    def read_word(self) -> Word:
        text: list[str] = []
        known = True
        runs = False
        if self.peek() == "~" and self.peek(2)[1:] not in ("", "/", *_META):
            known = False  # the home of somebody else
        while self.at < len(self.line):
            char = self.peek()
            if self.peek(2) in ("<(", ">("):
                self.at += 2
                self.read_list(")")
                text.append("/dev/fd/")
                known, runs = False, True
            elif char in _META:
                break
            elif char == "\\":
                self.at += 1
                if not self.peek():
                    raise Unreadable("a backslash at the end")
                if self.peek() != "\n":
                    text.append(self.peek())
                self.at += 1
            elif char == "'":
                text.append(self.read_single())
            elif char == '"':
                self.at += 1
                part = self.read_quoted('"')
                text.append(part.text)
                known = known and part.known
            elif char in "$`":
                known = self.read_expansion(text) and known
            else:
                if char in "*?[{" and self.peek(2) != "{}":
                    known = False  # files, or several words
                text.append(char)
                self.at += 1
        return Word("".join(text), known, runs)

    def read_single(self) -> str:
        end = self.line.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("a quote that is not closed")
        text = self.line[self.at + 1 : end]
        self.at = end + 1
        return text

    def read_quoted(self, closing: str | None) -> Word:
        """The inside of double quotes, of ${…}, or of a here-document, up to what closes it."""
        text: list[str] = []
        known = True
        while True:
            if self.at >= len(self.line):
                if closing:
                    raise Unreadable("a quote that is not closed")
                return Word("".join(text), known)
            char = self.peek()
            if char == closing:
                self.at += 1
                return Word("".join(text), known)
            if char == "\\":
                following = self.peek(2)[1:]
                escapes = following in ("$", "`", "\\", "\n") or following == closing
                text.append("" if following == "\n" else following if escapes else char + following)
                self.at += 2
            elif char in "$`":
                known = self.read_expansion(text, quoted=True) and known
            elif closing == "}" and char == '"':
                self.at += 1
                self.read_quoted('"')
            elif closing == "}" and (char == "'" or self.peek(2) in ("<(", ">(")):
                raise Unreadable("quotes in an expansion")
            else:
                text.append(char)
                self.at += 1

    def read_expansion(self, text: list[str], *, quoted: bool = False) -> bool:
        """What begins with $ or a backtick. False if only the shell knows what it becomes."""
        if self.take("`"):
            self.read_backticks(quoted)
        elif self.peek(3) == "$((":
            self.read_arithmetic()
        elif self.take("$("):
            self.read_list(")")
        elif self.take("${"):
            self.read_quoted("}")
        elif self.peek(2) in ("$'", '$"') and not quoted:
            self.at += 1
            if self.peek() == '"':
                return True  # a translated text: read on as quoted
            return self.read_escaped(text)
        else:
            self.at += 1
            name = self.peek()
            if name and (name.isalnum() or name in "_@*#?$!-"):
                self.at += 1
                while self.peek() and (self.peek().isalnum() or self.peek() == "_"):
                    self.at += 1
            elif name == "[":
                raise Unreadable("arithmetic")
            else:
                text.append("$")
                return True
        return False

    def read_backticks(self, quoted: bool) -> None:
        inner: list[str] = []
        while not self.take("`"):
            if self.at >= len(self.line):
                raise Unreadable("a backtick that is not closed")
            if quoted and self.peek(2) == '\\"':
                raise Unreadable("quotes in backticks in quotes")
            if self.peek() == "\\" and self.peek(2)[1:] in ("`", "\\", "$"):
                self.at += 1
            inner.append(self.peek())
            self.at += 1
        self.commands += split("".join(inner), self.depth + 1)

    def read_arithmetic(self) -> None:
        """$((…)): text, in which only substitutions run something."""
        end = self.line.find("))", self.at)
        if end < 0:
            raise Unreadable("arithmetic that does not end")
        inside = self.line[self.at + 3 : end]
        if any(char in inside for char in "$`();'\"\\"):
            raise Unreadable("arithmetic")
        self.at = end + 2

    def read_escaped(self, text: list[str]) -> bool:
        """$'…': escapes are not decoded, so that a word with one counts as unknown."""
        self.at += 1
        known = True
        while not self.take("'"):
            if self.at >= len(self.line):
                raise Unreadable("a quote that is not closed")
            if self.peek() == "\\":
                known = False
                self.at += 1
            text.append(self.peek())
            self.at += 1
        return known


def _is_assignment(raw: str) -> bool:
    name, sign, _ = raw.partition("=")
    name = name.removesuffix("+")
    return bool(sign) and name.isascii() and name.isidentifier()
