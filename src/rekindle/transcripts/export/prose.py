"""Render untrusted Markdown as HTML: no tags from the text, no images, no addresses that run code."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import cache, lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

_MAX_MARKDOWN_CHARS = 60_000  # a longer text is shown as it is
_MAX_LINE_CHARS = 8_000  # so is one with a longer line: some marks cost the square of its length
_MAX_BRACKETS, _MAX_STARS = 400, 2_000  # each may make the parser search the rest of its paragraph
_MAX_CODE_CHARS, _MAX_CODE_LINE = 12_000, 1_000  # beyond, code is shown without colors
_SAFE_SCHEMES = ("https://", "http://", "mailto:")
# Looked up by name only here: an unknown name would make Pygments load plugins.
_LEXER_NAMES = {
    name: lexer
    for lexer, names in {
        "python": "python py python3 pyi",
        "pycon": "pycon",
        # Those for C, C++, C# and Java take seconds for some texts of a few kilobytes.
        "javascript": "javascript js jsx mjs cjs node c h cpp c++ cc hpp cxx csharp c# cs java",
        "typescript": "typescript ts tsx",
        "go": "go golang",
        "rust": "rust rs",
        "bash": "bash sh shell zsh console shell-session make makefile",
        "json": "json jsonc json5 jsonl",
        "yaml": "yaml yml",
        "toml": "toml",
        "ini": "ini cfg conf properties dotenv env",
        "html": "html htm vue svelte",
        "xml": "xml svg plist",
        "css": "css scss less",
        "sql": "sql postgresql sqlite mysql",
        "kotlin": "kotlin kt",
        "swift": "swift",
        "ruby": "ruby rb",
        "php": "php",
        "lua": "lua",
        "diff": "diff patch",
        "docker": "docker dockerfile",
    }.items()
    for name in names.split()
}


def render_prose(text: str, *, keeps_breaks: bool = False) -> str:
    """Render Markdown as HTML. With `keeps_breaks`, a line of the text is a line on the page."""
    is_long = len(text) > _MAX_MARKDOWN_CHARS or _has_long_line(text)
    if is_long or text.count("[") > _MAX_BRACKETS or text.count("*") + text.count("_") > _MAX_STARS:
        return f'<div class="plain">{escape(text)}</div>'
    try:
        return cast(str, _get_parser(keeps_breaks).render(text))
    except (RecursionError, ValueError, IndexError):  # a fault of the parser must not cost the page
        return f'<div class="plain">{escape(text)}</div>'


def render_code(code: str, language: str) -> str:
    """Return the code as HTML, with classes for colors if the language is known."""
    lexer = _LEXER_NAMES.get(language.lower())
    if lexer is None or len(code) > _MAX_CODE_CHARS or _has_long_line(code, _MAX_CODE_LINE):
        return escape(code)
    from pygments import highlight

    return highlight(code, _get_lexer(lexer), _get_formatter()).removesuffix("\n")


def _has_long_line(text: str, limit: int = _MAX_LINE_CHARS) -> bool:
    return len(text) > limit and any(len(line) > limit for line in text.splitlines())


@lru_cache
def _get_lexer(name: str) -> Any:
    import pygments.lexers

    return cast(Any, pygments.lexers).get_lexer_by_name(name, stripnl=False, ensurenl=False)


@cache
def _get_formatter() -> Any:
    import pygments.formatters.html

    return cast(Any, pygments.formatters.html).HtmlFormatter(nowrap=True)


@cache
def _get_parser(keeps_breaks: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    options = {"html": False, "breaks": keeps_breaks, "maxNesting": 20}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline"])
    cast(Any, parser).validateLink = _is_safe_link
    parser.add_render_rule("fence", _render_fence)
    parser.add_render_rule("code_block", _render_fence)
    parser.add_render_rule("link_open", _render_link)
    parser.add_render_rule("image", _render_image)
    parser.add_render_rule("heading_open", _render_heading)
    parser.add_render_rule("heading_close", _render_heading)
    parser.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _is_safe_link(url: str) -> bool:
    return url.strip().lower().startswith(_SAFE_SCHEMES)


def _render_fence(
    self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: Any,
    env: MutableMapping[str, Any],
) -> str:
    token = tokens[index]
    words = token.info.split(maxsplit=1)
    language = words[0].lower() if words else ""
    name = f'<span class="lang">{escape(language[:20])}</span>' if language else ""
    code = render_code(token.content.removesuffix("\n"), language)
    return f'<div class="code">{name}<pre tabindex="0"><code>{code}</code></pre></div>\n'


def _render_link(
    self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: Any,
    env: MutableMapping[str, Any],
) -> str:
    url = escape(str(tokens[index].attrGet("href") or ""))
    return f'<a href="{url}" title="{url}" rel="noreferrer noopener nofollow">'


def _render_image(
    self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: Any,
    env: MutableMapping[str, Any],
) -> str:
    token = tokens[index]
    return (
        f'<span class="noimage">image: {escape(token.content or str(token.attrGet("src")))}</span>'
    )


def _render_heading(
    self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: Any,
    env: MutableMapping[str, Any],
) -> str:
    """Render a heading below those of the page."""
    token = tokens[index]
    level = min(6, int(token.tag[1]) + 2)
    return f"<h{level}>" if token.nesting == 1 else f"</h{level}>\n"
