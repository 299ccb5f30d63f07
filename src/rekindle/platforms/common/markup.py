"""Markdown as models write it, taken apart into styled spans, for platforms with another markup.

Only what chat networks can show is recognized. Everything else stays as it was written, blanks and
line breaks included, so that no text is ever lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

Style: TypeAlias = Literal["bold", "italic", "strike", "code", "block", "quote"]
Styles: TypeAlias = frozenset[Style]

_PLAIN: Styles = frozenset()
_CODE: Styles = frozenset({"code"})
_FENCES = ("```", "~~~")
_BULLETS = ("- ", "* ", "+ ")
_PUNCTUATION = "\\`*_{}[]()#+-.!|~>"
_DELIMITERS: tuple[tuple[str, Style], ...] = (
    ("**", "bold"),
    ("__", "bold"),
    ("~~", "strike"),
    ("*", "italic"),
    ("_", "italic"),
)
_LINKS = ("http://", "https://", "mailto:", "tg://")
_MAX_DEPTH = 6


class Span(NamedTuple):
    """A piece of text as it is shown."""

    text: str
    styles: Styles = _PLAIN
    url: str = ""
    language: str = ""


def parse_markdown(text: str) -> list[Span]:
    """Take Markdown apart into spans; their texts joined are what is shown."""
    spans: list[Span] = []
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        if spans:
            spans.append(Span("\n", _join_styles(lines, index)))
        block, index = _parse_block(lines, index)
        spans += block
    return [span for span in spans if span.text]


def render_marks(
    spans: Sequence[Span],
    *,
    escape: Callable[[str], str] = str,
    link: Callable[[str, str], str],
) -> str:
    """Render spans with the marks that Slack and WhatsApp share."""
    rendered: list[str] = []
    at_line_start = True
    for span in spans:
        text = _render_span(span, escape, link)
        if "quote" in span.styles and at_line_start:
            text = f"> {text}"
        rendered.append(text)
        at_line_start = span.text.endswith("\n")
    return "".join(rendered)


def count_utf16(text: str) -> int:
    """Return the number of UTF-16 code units of a text."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def list_runs(spans: Sequence[Span], style: Style) -> list[tuple[int, int, str]]:
    """List where a style begins, its length, both in UTF-16 code units, and the language of code.

    Neighbours with the same style are one run, except blocks of code.
    """
    runs: list[tuple[int, int, str]] = []
    offset = end = 0
    for span in spans:
        size = count_utf16(span.text)
        if style in span.styles:
            if runs and end == offset and style != "block":
                runs[-1] = (runs[-1][0], runs[-1][1] + size, runs[-1][2])
            else:
                runs.append((offset, size, span.language))
            end = offset + size
        offset += size
    return runs


def write_for_discord(text: str) -> str:
    """Rewrite what Discord's Markdown lacks: tables become code, deep headings bold text."""
    lines = text.split("\n")
    written: list[str] = []
    index, fence = 0, ""
    while index < len(lines):
        line = lines[index]
        if fence or line.lstrip(" ")[:3] in _FENCES:
            is_end = bool(fence) and _is_fence_end(line, fence)
            fence = "" if is_end else fence or line.strip()[:3]
        elif (end := _find_table_end(lines, index)) > index:
            written += ["```", *lines[index:end], "```"]
            index = end
            continue
        elif line.startswith("####") and line.lstrip("#").startswith(" "):
            line = f"**{line.lstrip('#').strip()}**"
        written.append(line)
        index += 1
    return "\n".join(written)


def _render_span(span: Span, escape: Callable[[str], str], link: Callable[[str, str], str]) -> str:
    if "block" in span.styles:
        return f"```\n{escape(span.text)}\n```"
    if "code" in span.styles:
        return f"`{escape(span.text)}`"
    core = span.text.strip()
    if not core:
        return escape(span.text)
    text = link(escape(core), span.url) if span.url else escape(core)
    marks: tuple[tuple[Style, str], ...] = (("strike", "~"), ("italic", "_"), ("bold", "*"))
    for style, mark in marks:
        if style in span.styles:
            text = f"{mark}{text}{mark}"
    start = span.text.index(core)
    return span.text[:start] + text + span.text[start + len(core) :]


# -- blocks


def _parse_block(lines: Sequence[str], index: int) -> tuple[list[Span], int]:
    """Parse the block that begins at a line; return its spans and the line after it."""
    line = lines[index]
    stripped = line.lstrip(" ")
    if stripped[:3] in _FENCES and "`" not in stripped.lstrip("`"):
        return _parse_fence(lines, index)
    if (end := _find_table_end(lines, index)) > index:
        return [Span("\n".join(lines[index:end]), frozenset({"block"}))], end
    if _is_quote(line):
        return _parse_inline(stripped[1:].removeprefix(" "), frozenset({"quote"})), index + 1
    level = len(stripped) - len(stripped.lstrip("#"))
    if 1 <= level <= 6 and stripped[level : level + 1] == " ":
        return _parse_inline(stripped[level:].strip(" #"), frozenset({"bold"})), index + 1
    if stripped.startswith(_BULLETS):
        indent = line[: len(line) - len(stripped)]
        return [Span(f"{indent}• "), *_parse_inline(stripped[2:], _PLAIN)], index + 1
    return _parse_inline(line, _PLAIN), index + 1


def _parse_fence(lines: Sequence[str], index: int) -> tuple[list[Span], int]:
    opening = lines[index].strip()
    mark = opening[: len(opening) - len(opening.lstrip(opening[0]))]
    language = opening[len(mark) :].strip().partition(" ")[0]
    end = index + 1
    while end < len(lines) and not _is_fence_end(lines[end], mark):
        end += 1
    code = "\n".join(lines[index + 1 : end])
    styles: Styles = frozenset({"block"})
    return [Span(code or " ", styles, language=language)], min(end + 1, len(lines))


def _is_fence_end(line: str, mark: str) -> bool:
    closing = line.strip()
    return closing.startswith(mark) and not closing.strip(mark[0])


def _find_table_end(lines: Sequence[str], index: int) -> int:
    """Return the line after a table that begins here, else the line itself."""
    if index + 1 >= len(lines) or "|" not in lines[index]:
        return index
    ruler = lines[index + 1].strip()
    if "|" not in ruler or "-" not in ruler or ruler.strip("|-: "):
        return index
    end = index + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end


def _is_quote(line: str) -> bool:
    return line.lstrip(" ").startswith(">")


def _join_styles(lines: Sequence[str], index: int) -> Styles:
    """Return the styles of the line break before a line: one quote stays one."""
    both_quoted = _is_quote(lines[index]) and _is_quote(lines[index - 1])
    return frozenset({"quote"}) if both_quoted else _PLAIN


# -- inline


def _parse_inline(text: str, styles: Styles, depth: int = 0) -> list[Span]:
    spans: list[Span] = []
    unclosed: set[str] = set()  # marks that nothing closes from here on: not looked for again
    start = index = 0
    while index < len(text):
        found = None
        if depth < _MAX_DEPTH and text[index] in "\\`*_~[!<":
            found = _parse_marked(text, index, styles, depth, unclosed)
        if found is None:
            index += 1
            continue
        if start < index:
            spans.append(Span(text[start:index], styles))
        spans += found[0]
        start = index = found[1]
    if start < len(text):
        spans.append(Span(text[start:], styles))
    return spans


def _parse_marked(
    text: str, index: int, styles: Styles, depth: int, unclosed: set[str]
) -> tuple[list[Span], int] | None:
    """Parse what begins with a mark; return its spans and the index after it, None if nothing does."""
    mark = text[index]
    if mark == "\\":
        escaped = text[index + 1 : index + 2]
        return ([Span(escaped, styles)], index + 2) if escaped and escaped in _PUNCTUATION else None
    if mark == "`":
        return _parse_code(text, index, styles)
    if mark in "[!":
        return _parse_link(text, index, styles, depth)
    if mark == "<":
        end = text.find(">", index)
        url = text[index + 1 : end]
        is_link = end > 0 and url.startswith(_LINKS) and not any(map(str.isspace, url))
        return ([Span(url, styles, url)], end + 1) if is_link else None
    return _parse_emphasis(text, index, styles, depth, unclosed)


def _parse_code(text: str, index: int, styles: Styles) -> tuple[list[Span], int] | None:
    rest = text[index:]
    mark = rest[: len(rest) - len(rest.lstrip("`"))]
    end = text.find(mark, index + len(mark))
    while end > 0 and text[end + len(mark) : end + len(mark) + 1] == "`":
        following = end + len(mark)
        while text[following : following + 1] == "`":
            following += 1
        end = text.find(mark, following)
    if end < 0:
        return None
    code = text[index + len(mark) : end]
    if code.startswith(" ") and code.endswith(" ") and code.strip():
        code = code[1:-1]
    return [Span(code, styles | _CODE)], end + len(mark)


def _parse_link(text: str, index: int, styles: Styles, depth: int) -> tuple[list[Span], int] | None:
    begin = index + 1 if text[index] == "[" else index + 2
    if text[begin - 1 : begin] != "[":
        return None
    middle = text.find("](", begin)
    end = text.find(")", middle + 2) if middle > 0 else -1
    if end < 0:
        return None
    url = text[middle + 2 : end].partition(" ")[0]
    if url.count("(") > url.count(")") and text[end + 1 : end + 2] == ")":
        end, url = end + 1, f"{url})"
    label = text[begin:middle]
    if not url.startswith(_LINKS) or "[" in label or "\n" in label:
        return None
    inner = _parse_inline(label or url, styles, depth + 1)
    return [span._replace(url=url) for span in inner], end + 1


def _parse_emphasis(
    text: str, index: int, styles: Styles, depth: int, unclosed: set[str]
) -> tuple[list[Span], int] | None:
    for mark, style in _DELIMITERS:
        if mark in unclosed or not text.startswith(mark, index):
            continue
        begin = index + len(mark)
        if text[begin : begin + 1].strip() == "":
            continue
        if mark[0] == "_" and index > 0 and text[index - 1].isalnum():
            continue
        end = _find_closing(text, begin, mark)
        if end > begin:
            added: Styles = frozenset({style})
            inner = _parse_inline(text[begin:end], styles | added, depth + 1)
            return inner, end + len(mark)
        if end < 0:
            unclosed.add(mark)
    return None


def _find_closing(text: str, begin: int, mark: str) -> int:
    end = text.find(mark, begin + 1)
    while end > 0:
        after = text[end + len(mark) : end + len(mark) + 1]
        if len(mark) == 1 and after == mark:  # part of a longer mark: skip all of it
            while text[end : end + 1] == mark:
                end += 1
            end = text.find(mark, end)
            continue
        is_word = mark[0] == "_" and after.isalnum()
        if not text[end - 1].isspace() and not is_word:
            return end + 1 if len(mark) == 2 and after == mark[0] else end
        end = text.find(mark, end + 1)
    return -1
