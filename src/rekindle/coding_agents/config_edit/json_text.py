"""Parse JSON with comments into values that know where they stand in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeAlias

from rekindle.errors import InvalidInput

JsonKey: TypeAlias = str | int
MAX_DEPTH = 200
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<comment>//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)
    |(?P<string>"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")
    |(?P<mark>[{}\[\],:])
    |(?P<scalar>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)""",
    re.VERBOSE,
)
_BOM = "\ufeff"
_CLOSING = {"object": "}", "array": "]"}


@dataclass(slots=True)
class JsonNode:
    """A value and its place in the text; `start` of a member's value is behind its key."""

    kind: Literal["object", "array", "scalar"]
    start: int
    end: int = 0
    members: list[JsonMember] = field(default_factory=list["JsonMember"])

    def find_member(self, key: JsonKey) -> JsonMember | None:
        """Return the member with this key or index; raise InvalidInput if a key occurs twice."""
        if isinstance(key, int):
            is_inside = self.kind == "array" and 0 <= key < len(self.members)
            return self.members[key] if is_inside else None
        found = [one for one in self.members if one.key == key] if self.kind == "object" else []
        if len(found) > 1:
            raise InvalidInput(f'the key "{key}" occurs more than once')
        return found[0] if found else None


@dataclass(slots=True)
class JsonMember:
    """An element of an array or a member of an object, and the comma behind it."""

    start: int  # of the key, if it has one
    key: str | None = None
    node: JsonNode = field(default_factory=lambda: JsonNode("scalar", 0))
    comma: int | None = None


class JsonDocument:
    """A text and the values in it; an empty text counts as an empty object."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = _Parser(text).parse_document()

    def find_node(self, *path: JsonKey) -> JsonNode | None:
        """Return the value at a path of keys and indexes."""
        node = self.root
        for key in path:
            member = node.find_member(key)
            if member is None:
                return None
            node = member.node
        return node

    def load_value(self, node: JsonNode) -> Any:
        """Return the value of a node as Python has it; of keys that occur twice, the last."""
        if node.kind == "scalar":
            return json.loads(self.text[node.start : node.end])
        if node.kind == "array":
            return [self.load_value(one.node) for one in node.members]
        return {one.key: self.load_value(one.node) for one in node.members}

    def load_path(self, *path: JsonKey) -> Any:
        """Return the value at a path, or None."""
        node = self.find_node(*path)
        return None if node is None else self.load_value(node)


def find_line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return the line and the column of a position, both from 1."""
    before = text[:position]
    return before.count("\n") + 1, position - before.rfind("\n")


class _Parser:
    """A parser without recursion: files of others may be nested as deeply as they like."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._iter_tokens()

    def _iter_tokens(self) -> Iterator[tuple[str, int, int]]:
        text, position = self._text, len(_BOM) if self._text.startswith(_BOM) else 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._fail(position, "unexpected character")
            kind, position = match.lastgroup or "", match.end()
            if kind not in ("space", "comment"):
                if kind == "string":
                    self._check_escapes(match)
                yield (match[0] if kind == "mark" else kind), match.start(), position

    def _check_escapes(self, match: re.Match[str]) -> None:
        if "\\" in match[0]:
            try:
                json.loads(match[0])
            except ValueError:
                self._fail(match.start(), "invalid escape in a string")

    def _fail(self, position: int, problem: str) -> NoReturn:
        line, column = find_line_and_column(self._text, position)
        raise InvalidInput(f"not valid JSON: line {line}, column {column}: {problem}")

    def _next_token(self) -> tuple[str, int, int]:
        end = len(self._text)
        return next(self._tokens, ("end", end, end))

    def parse_document(self) -> JsonNode:
        token = self._next_token()
        if token[0] == "end":
            return JsonNode("object", token[1], token[1])
        root = self._begin_value(token)
        stack = [root] if root.kind != "scalar" else []
        while stack:
            self._read_member(stack)
        token = self._next_token()
        if token[0] != "end":
            self._fail(token[1], "text after the end of the value")
        if root.kind != "object":
            raise InvalidInput("not a JSON object")
        return root

    def _begin_value(self, token: tuple[str, int, int]) -> JsonNode:
        kind, start, end = token
        if kind == "{":
            return JsonNode("object", start)
        if kind == "[":
            return JsonNode("array", start)
        if kind not in ("string", "scalar"):
            self._fail(start, "the text ends too early" if kind == "end" else "a value is missing")
        return JsonNode("scalar", start, end)

    def _read_member(self, stack: list[JsonNode]) -> None:
        """Read the next member of the innermost container, or its end."""
        container, token = stack[-1], self._next_token()
        if container.members and container.members[-1].comma is None:
            if token[0] == ",":
                container.members[-1].comma = token[1]
                token = self._next_token()
            elif token[0] != _CLOSING[container.kind]:
                self._fail(token[1], "a comma or the end of the container is missing")
        if token[0] == _CLOSING[container.kind]:
            container.end = token[2]
            stack.pop()
            return
        member = JsonMember(token[1])
        if container.kind == "object":
            if token[0] != "string":
                self._fail(token[1], "a key is missing")
            member.key = json.loads(self._text[token[1] : token[2]])
            colon = self._next_token()
            if colon[0] != ":":
                self._fail(colon[1], "a colon is missing")
            token = self._next_token()
        member.node = self._begin_value(token)
        container.members.append(member)
        if member.node.kind != "scalar":
            if len(stack) == MAX_DEPTH:
                self._fail(member.node.start, "nested too deeply")
            stack.append(member.node)
