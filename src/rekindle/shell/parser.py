"""Parse a command line exactly: find every simple command that a shell would run.

Supports quotes, escapes, pipes, lists, groups, loops, nested substitutions, redirections and
here-documents. Anything beyond (functions, `case`, arrays) is rejected rather than guessed: the caller
treats an unparsable line as dangerous. Nothing is expanded; a word whose value only the shell will
know is marked as unknown. `command_reader.py` reads lines for which a guess is good enough.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MAX_LENGTH = 100_000
_MAX_DEPTH = 25
_BLANK = " \t"
_META = " \t\n;&|()<>"
# Keywords before or between commands that run nothing themselves.
_LEADING = frozenset(["if", "then", "else", "elif", "while", "until", "do", "!", "{"])
_ENDING = frozenset(["fi", "done", "}"])
_UNSUPPORTED = frozenset(["case", "esac", "select", "function", "coproc"])
# A line continuation inside a word can hide what the shell makes of it.
_BROKEN_WORD = re.compile(r"[^\s\\]\\\n")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# A whole word without surprises, which most are: plain, or in one pair of quotes.
_WHOLE_WORD = re.compile(
    r"""[ \t]*(?:([^\s;&|()<>\\'"$`*?\[{~\#\d][^\s;&|()<>\\'"$`*?\[{]*)|'([^']*)'|"([^"\\$`]*)")"""
    r"(?=[ \t\n;&|)]|\Z)"
)
# Runs of characters without a meaning of their own: in a word, and by what closes the quotes.
_PLAIN = re.compile(r"[^ \t\n;&|()<>\\'\"$`*?\[{]+")
_PLAIN_QUOTED = {
    '"': re.compile(r"[^\"\\$`]+"),
    "}": re.compile(r"[^}\\$`\"'<>]+"),
    None: re.compile(r"[^\\$`]+"),
}


class UnparsableCommand(Exception):
    """The line cannot be parsed reliably."""


class ShellWord(NamedTuple):
    """One word without its quotes. `known` is False if its value depends on an expansion."""

    text: str
    known: bool = True
    is_pipe: bool = False  # names a pipe to a command, as in <(…)


class Redirect(NamedTuple):
    """A redirection: its operator, and its target or the text of a here-document."""

    operator: str
    target: ShellWord


class ShellCommand(NamedTuple):
    """One simple command, the operator before it (`|`, `&&`, …), and its redirections."""

    words: tuple[ShellWord, ...]
    redirects: tuple[Redirect, ...] = ()
    operator: str = ""
    assignments: tuple[ShellWord, ...] = ()  # NAME=value before it


def parse_commands(line: str, depth: int = 0) -> tuple[ShellCommand, ...]:
    """Return every simple command at any depth; raise UnparsableCommand if one could be missed."""
    if len(line) > _MAX_LENGTH or depth > _MAX_DEPTH:
        raise UnparsableCommand("too long or too deep")
    if _CONTROL.search(line):
        raise UnparsableCommand("control characters")
    if "\\\n" in line and _BROKEN_WORD.search(line):
        raise UnparsableCommand("a word split across lines")
    reader = _ShellParser(line, depth)
    reader.read_list(None)
    if reader.pending_documents:
        raise UnparsableCommand("a here-document without a body")
    return tuple(reader.commands)


class _ShellParser:
    def __init__(self, line: str, depth: int) -> None:
        self.line = line
        self.depth = depth
        self.position = 0
        self.commands: list[ShellCommand] = []
        self.pending_documents: list[
            tuple[int, str, bool, bool]
        ] = []  # (command index, delimiter, quoted, strip tabs)

    def peek(self, length: int = 1) -> str:
        return self.line[self.position : self.position + length]

    def accept(self, *texts: str) -> str | None:
        for text in texts:
            if self.line.startswith(text, self.position):
                self.position += len(text)
                return text
        return None

    # -- lists of commands

    def read_list(self, closing: str | None) -> None:
        """Read commands up to the end of the line, or up to the closing bracket."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise UnparsableCommand("too deep")
        if closing and self.pending_documents:
            raise UnparsableCommand("a here-document across brackets")
        operator = ""
        while True:
            self.skip_blanks()
            if self.position >= len(self.line):
                if closing:
                    raise UnparsableCommand(f"missing {closing}")
                break
            if token := self.accept("\n"):
                self.read_documents()
            elif closing and self.accept(closing):
                break
            elif token := self.accept("&&", "||", "|&", "|", ";;", ";", "&"):
                if token == ";;":
                    raise UnparsableCommand("case")
            else:
                self.read_command(operator)
                operator = ""
                continue
            operator = {"\n": ";", "|&": "|", None: ""}.get(token, token or "")
        if closing and self.pending_documents:
            raise UnparsableCommand("a here-document without a body")
        self.depth -= 1

    def skip_blanks(self) -> None:
        while self.position < len(self.line):
            if self.peek() in _BLANK:
                self.position += 1
            elif self.peek(2) == "\\\n":
                self.position += 2
            elif self.peek() == "#":
                end = self.line.find("\n", self.position)
                self.position = len(self.line) if end < 0 else end
            else:
                return

    def read_command(self, operator: str) -> None:
        """Read a simple command, or a group in brackets with its redirections."""
        if self.peek(2) == "((":
            raise UnparsableCommand("arithmetic")
        if self.accept("("):
            self.read_list(")")
            self.read_words(operator, group=True)
        elif self.peek() == ")":
            raise UnparsableCommand("unbalanced bracket")
        else:
            self.read_words(operator, group=False)

    def read_words(self, operator: str, *, group: bool) -> None:
        words: list[ShellWord] = []
        assignments: list[ShellWord] = []
        redirects: list[Redirect] = []
        is_loop = False  # `for x in …`: words, not a command
        index = len(self.commands)
        self.commands.append(ShellCommand(()))  # reserves the index for here-documents
        while True:
            if words and (whole := _WHOLE_WORD.match(self.line, self.position)):
                words.append(ShellWord(whole[whole.lastindex or 0]))
                self.position = whole.end()
                continue
            self.skip_blanks_in_command()
            if self.position >= len(self.line) or (
                self.peek() in "\n;&|)" and self.peek(2) != "&>"
            ):
                break
            if redirect := self.read_redirect(index):
                redirects.append(redirect)
                continue
            if self.peek() == "(":
                raise UnparsableCommand("a function or an array")
            start = self.position
            word = self.read_word()
            raw = self.line[start : self.position]
            if group:
                if raw in _LEADING | _ENDING and not words:
                    continue
                raise UnparsableCommand("a word after a bracket")
            if not words and not is_loop:
                if raw in _UNSUPPORTED:
                    raise UnparsableCommand(raw)
                if raw in _LEADING or raw in _ENDING:
                    continue
                if raw == "[[":
                    self.skip_test()
                    continue
                if raw == "for":
                    is_loop = True
                    continue
                if _is_assignment(raw):
                    assignments.append(word)
                    continue
            words.append(word)
        self.commands[index] = ShellCommand(
            () if is_loop else tuple(words), tuple(redirects), operator, tuple(assignments)
        )

    def skip_blanks_in_command(self) -> None:
        while self.peek() in (" ", "\t") or self.peek(2) == "\\\n":
            self.position += 2 if self.peek() == "\\" else 1
        if self.peek() == "#":
            self.skip_blanks()

    def skip_test(self) -> None:
        """Skip the inside of [[ … ]], where only substitutions run commands."""
        while True:
            while self.peek() in (" ", "\t", "\n", "&", "|", "<", ">", "(", ")"):
                if self.peek(2) in ("<(", ">("):
                    break
                self.position += 1
            start = self.position
            self.read_word()
            if self.position == start:
                raise UnparsableCommand("[[ without ]]")
            if self.line[start : self.position] == "]]":
                return

    # -- redirections

    def read_redirect(self, index: int) -> Redirect | None:
        start = self.position
        if self.peek() not in "<>&0123456789":
            return None  # most words need no closer look
        while self.peek().isdigit():
            self.position += 1
        if self.position > start and self.peek() not in ("<", ">"):
            self.position = start
            return None
        if self.peek(2) in ("<(", ">(") and self.position == start:
            return None  # a process substitution is a word
        operator = self.accept(
            "&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">"
        )
        if operator is None:
            self.position = start
            return None
        self.skip_blanks_in_command()
        if self.position >= len(self.line) or self.peek() in "\n;&|)":
            raise UnparsableCommand("a redirection without a target")
        begin = self.position
        target = self.read_word()
        if self.position == begin:
            raise UnparsableCommand("a redirection without a target")
        if operator in ("<<", "<<-"):
            if not target.known:
                raise UnparsableCommand("a here-document with an unknown delimiter")
            raw = self.line[begin : self.position]
            quoted = any(char in raw for char in "'\"\\")
            self.pending_documents.append((index, target.text, quoted, operator == "<<-"))
            return Redirect(f"<<{len(self.pending_documents) - 1}", target)
        return Redirect(operator, target)

    def read_documents(self) -> None:
        """Read the bodies of the here-documents that this line announced."""
        pending, self.pending_documents = self.pending_documents, []
        for number, (index, delimiter, quoted, strip_tabs) in enumerate(pending):
            lines: list[str] = []
            while True:
                if self.position >= len(self.line):
                    raise UnparsableCommand(f"unterminated here-document {delimiter}")
                end = self.line.find("\n", self.position)
                end = len(self.line) if end < 0 else end
                text = self.line[self.position : end]
                self.position = min(end + 1, len(self.line))
                text = text.lstrip("\t") if strip_tabs else text
                if text == delimiter:
                    break
                lines.append(text)
            body = "\n".join(lines)
            known = True if quoted else self.parse_expanded_text(body)
            self.attach_document(index, number, ShellWord(body, known))

    def attach_document(self, index: int, number: int, body: ShellWord) -> None:
        command = self.commands[index]
        redirects = [
            Redirect("<<", body) if one.operator == f"<<{number}" else one
            for one in command.redirects
        ]
        self.commands[index] = command._replace(redirects=tuple(redirects))

    def parse_expanded_text(self, body: str) -> bool:
        """Collect the commands in a text that the shell expands; return whether it is constant."""
        inner = _ShellParser(body, self.depth)
        known = inner.read_quoted(None).known
        self.commands += inner.commands
        return known

    # -- words

    def read_word(self) -> ShellWord:
        text: list[str] = []
        known = True
        is_pipe = False
        if self.peek() == "~" and self.peek(2)[1:] not in ("", "/", *_META):
            known = False  # another user's home
        while self.position < len(self.line):
            char = self.peek()
            if self.peek(2) in ("<(", ">("):
                self.position += 2
                self.read_list(")")
                text.append("/dev/fd/")
                known, is_pipe = False, True
            elif char in _META:
                break
            elif char == "\\":
                self.position += 1
                if not self.peek():
                    raise UnparsableCommand("trailing backslash")
                if self.peek() != "\n":
                    text.append(self.peek())
                self.position += 1
            elif char == "'":
                text.append(self.read_single())
            elif char == '"':
                self.position += 1
                part = self.read_quoted('"')
                text.append(part.text)
                known = known and part.known
            elif char in "$`":
                known = self.read_expansion(text) and known
            elif run := _PLAIN.match(self.line, self.position):
                text.append(run[0])
                self.position = run.end()
            else:
                if self.peek(2) != "{}" and not self.is_lone_bracket():
                    known = False  # expands to files, or to several words
                text.append(char)
                self.position += 1
        return ShellWord("".join(text), known, is_pipe)

    def is_lone_bracket(self) -> bool:
        """Return whether this is the command `[`, which expands to nothing."""
        return self.peek() == "[" and self.peek(2)[1:] in ("", *_META)

    def read_single(self) -> str:
        end = self.line.find("'", self.position + 1)
        if end < 0:
            raise UnparsableCommand("unclosed quote")
        text = self.line[self.position + 1 : end]
        self.position = end + 1
        return text

    def read_quoted(self, closing: str | None) -> ShellWord:
        """Read the inside of double quotes, ${…} or a here-document, up to its end."""
        text: list[str] = []
        known = True
        plain = _PLAIN_QUOTED[closing]
        while True:
            if self.position >= len(self.line):
                if closing:
                    raise UnparsableCommand("unclosed quote")
                return ShellWord("".join(text), known)
            char = self.peek()
            if run := plain.match(self.line, self.position):
                text.append(run[0])
                self.position = run.end()
            elif char == closing:
                self.position += 1
                return ShellWord("".join(text), known)
            elif char == "\\":
                following = self.peek(2)[1:]
                escapes = following in ("$", "`", "\\", "\n") or following == closing
                text.append("" if following == "\n" else following if escapes else char + following)
                self.position += 2
            elif char in "$`":
                known = self.read_expansion(text, quoted=True) and known
            elif closing == "}" and char == '"':
                self.position += 1
                self.read_quoted('"')
            elif closing == "}" and (char == "'" or self.peek(2) in ("<(", ">(")):
                raise UnparsableCommand("quotes in an expansion")
            else:
                text.append(char)
                self.position += 1

    def read_expansion(self, text: list[str], *, quoted: bool = False) -> bool:
        """Read an expansion after $ or a backtick; return False if its value is unknown."""
        if self.accept("`"):
            self.read_backticks(quoted)
        elif self.peek(3) == "$((":
            self.read_arithmetic()
        elif self.accept("$("):
            self.read_list(")")
        elif self.accept("${"):
            self.read_quoted("}")
        elif self.peek(2) in ("$'", '$"') and not quoted:
            self.position += 1
            if self.peek() == '"':
                return True  # $"…": parse as quoted
            return self.read_escaped(text)
        else:
            self.position += 1
            name = self.peek()
            if name and (name.isalnum() or name in "_@*#?$!-"):
                self.position += 1
                while self.peek() and (self.peek().isalnum() or self.peek() == "_"):
                    self.position += 1
            elif name == "[":
                raise UnparsableCommand("arithmetic")
            else:
                text.append("$")
                return True
        return False

    def read_backticks(self, quoted: bool) -> None:
        inner: list[str] = []
        while not self.accept("`"):
            if self.position >= len(self.line):
                raise UnparsableCommand("unclosed backtick")
            if quoted and self.peek(2) == '\\"':
                raise UnparsableCommand("nested quotes in backticks")
            if self.peek() == "\\" and self.peek(2)[1:] in ("`", "\\", "$"):
                self.position += 1
            inner.append(self.peek())
            self.position += 1
        self.commands += parse_commands("".join(inner), self.depth + 1)

    def read_arithmetic(self) -> None:
        """Skip $((…)); reject it if it could contain a substitution."""
        end = self.line.find("))", self.position)
        if end < 0:
            raise UnparsableCommand("unterminated arithmetic")
        inside = self.line[self.position + 3 : end]
        if any(char in inside for char in "$`();'\"\\"):
            raise UnparsableCommand("arithmetic")
        self.position = end + 2

    def read_escaped(self, text: list[str]) -> bool:
        """Read $'…' without decoding escapes; a word with one counts as unknown."""
        self.position += 1
        known = True
        while not self.accept("'"):
            if self.position >= len(self.line):
                raise UnparsableCommand("unclosed quote")
            if self.peek() == "\\":
                known = False
                self.position += 1
            text.append(self.peek())
            self.position += 1
        return known


def _is_assignment(raw: str) -> bool:
    name, sign, _ = raw.partition("=")
    name = name.removesuffix("+")
    return bool(sign) and name.isascii() and name.isidentifier()
