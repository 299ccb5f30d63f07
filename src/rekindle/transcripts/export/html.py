"""HTML export of a session as one self-contained page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import cast

from rekindle.types import JSON, Message, Session, ToolCall

from .common import (
    Exchange,
    describe_failure,
    format_arguments,
    format_time,
    format_title,
    list_session_details,
    pair_results,
    preview_call,
    replace_surrogates,
)

_FENCE_START = re.compile(r"^```[^\n]*\n", re.MULTILINE)
_FENCE_END = re.compile(r"^```[ \t]*$", re.MULTILINE)
_INLINE_MARKUP = re.compile(r"`([^`\n]+)`|\*\*(?=\S)([^*`\n]{1,200}?)(?<=\S)\*\*")
# Only inline images: the page must never make a network request.
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+\Z")
_ROLES = {"user", "assistant", "tool", "system", "developer"}

_STYLE = """
:root{color-scheme:light dark;--bg:#fbfaf8;--card:#fff;--ink:#1d1b18;--soft:#6d6760;--line:#e4dfd8;
--user:#2f6fde;--agent:#b4541a;--good:#2b8a4b;--bad:#c4312b;--badbg:#fdf0ef;--code:#f4f1ec}
@media (prefers-color-scheme:dark){:root{--bg:#171614;--card:#1f1d1b;--ink:#e9e5df;--soft:#9b948b;
--line:#35312d;--user:#7aa7ff;--agent:#f0a06a;--good:#6cc88a;--bad:#ff8078;--badbg:#2c1c1b;
--code:#262320}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main,header{max-width:54rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2.5rem;padding-bottom:1rem;border-bottom:1px solid var(--line)}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .75rem;overflow-wrap:anywhere}
dl{display:flex;flex-wrap:wrap;gap:.15rem 1.5rem;margin:0;font-size:.85rem}
dl div{display:flex;gap:.4rem;min-width:0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
article{padding:0 0 .4rem 1rem;border-left:3px solid var(--line);margin:1.25rem 0}
article.user{border-color:var(--user)}article.assistant{border-color:var(--agent)}
h2{display:flex;justify-content:space-between;gap:1rem;font-size:.8rem;letter-spacing:.05em;
text-transform:uppercase;margin:0 0 .5rem;color:var(--soft)}
.user h2 b{color:var(--user)}.assistant h2 b{color:var(--agent)}
h2 a{color:inherit;text-decoration:none;font-weight:400;letter-spacing:0;text-transform:none}
.said{white-space:pre-wrap;overflow-wrap:anywhere}
pre,code{font:.84rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{background:var(--code);padding:.1em .3em;border-radius:4px}
pre{background:var(--code);padding:.75rem .9rem;border-radius:8px;margin:.5rem 0;overflow:auto;
max-height:32rem;white-space:pre-wrap;overflow-wrap:anywhere}
details{background:var(--card);border:1px solid var(--line);border-radius:8px;margin:.5rem 0;
padding:0 .9rem}
details[open]{padding-bottom:.4rem}
summary{cursor:pointer;padding:.45rem 0;display:flex;gap:.6rem;align-items:baseline;
font-size:.9rem;list-style:none}
summary::-webkit-details-marker{display:none}
summary::before{content:"▸";color:var(--soft)}details[open]>summary::before{content:"▾"}
summary i{font-style:normal;color:var(--soft);overflow:hidden;text-overflow:ellipsis;
white-space:nowrap;flex:1;font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.8rem}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:600;white-space:nowrap}
details.failed{border-color:var(--bad);background:var(--badbg)}
img{max-width:100%;border-radius:8px;margin:.5rem 0}
footer{max-width:54rem;margin:2rem auto;padding:0 1.25rem;color:var(--soft);font-size:.8rem}
@media print{pre{max-height:none}}
""".strip()


def render_session(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    """Yield the page piece by piece. All content is escaped and nothing external is loaded."""
    title = escape(format_title(session))
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{title}</h1>\n<dl>"
    )
    for name, value in list_session_details(session):
        yield f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
    yield "</dl>\n</header>\n<main>\n"
    for number, exchange in enumerate(pair_results(messages), 1):
        yield from _render_article(number, exchange)
    yield "</main>\n<footer>Exported by Rekindle</footer>\n</body>\n</html>\n"


def _render_article(number: int, exchange: Exchange) -> Iterator[str]:
    message = exchange.message
    role = message.role if message.role in _ROLES else "other"
    name = "tool result" if role == "tool" else replace_surrogates(message.role)
    time = format_time(message.timestamp) or f"#{number}"
    yield f'<article class="{role}" id="m{number}">\n<h2><b>{escape(name)}</b>'
    yield f'<a href="#m{number}">{escape(time)}</a></h2>\n'
    if message.reasoning:
        yield "<details><summary>Thinking</summary>"
        yield f'<div class="said">{_render_prose(message.reasoning)}</div></details>\n'
    if message.role == "tool":
        yield from _render_result(message)
    elif message.text:
        yield f'<div class="said">{_render_prose(message.text)}</div>\n'
    yield from _render_images(message)
    for call in message.tool_calls:
        yield from _render_call(call, exchange.results.get(call.id))
    yield "</article>\n"


def _render_call(call: ToolCall, result: Message | None) -> Iterator[str]:
    failure = describe_failure(result) if result else None
    yield f'<details class="{"failed" if failure else "call"}"><summary>'
    yield f"<b>{escape(replace_surrogates(call.name))}</b><i>{escape(preview_call(call))}</i>"
    if result is None:
        yield "<span>no result</span>"
    elif failure:
        yield f'<span class="bad">{escape(failure)}</span>'
    else:
        yield '<span class="good">✓</span>'
    yield f"</summary>\n<pre>{escape(format_arguments(call))}</pre>\n"
    if result:
        yield from _render_result(result)
        yield from _render_images(result)
    yield "</details>\n"


def _render_result(result: Message) -> Iterator[str]:
    if text := replace_surrogates(result.text):
        yield f"<pre>{escape(text)}</pre>\n"


def _render_prose(text: str) -> str:
    """Render text with its code blocks marked up and everything else unchanged."""
    text = replace_surrogates(text)
    chunks: list[str] = []
    end = 0
    while (opening := _FENCE_START.search(text, end)) and (
        closing := _FENCE_END.search(text, opening.end())
    ):
        chunks.append(_render_inline(text[end : opening.start()].removesuffix("\n")))
        chunks.append(f"<pre>{escape(text[opening.end() : closing.start()])}</pre>")
        # The block element already ends the line.
        end = closing.end() + (text[closing.end() : closing.end() + 1] == "\n")
    chunks.append(_render_inline(text[end:]))
    return "".join(chunks)


def _render_inline(text: str) -> str:
    return _INLINE_MARKUP.sub(
        lambda found: f"<code>{found[1]}</code>" if found[1] else f"<strong>{found[2]}</strong>",
        escape(text),
    )


def _render_images(message: Message) -> Iterator[str]:
    if message.content is None or isinstance(message.content, str):
        return
    for part in message.content:
        image = part.get("image_url")
        url = cast("Mapping[str, JSON]", image).get("url") if isinstance(image, Mapping) else image
        if isinstance(url, str) and _DATA_IMAGE.match(url):
            yield f'<img alt="" src="{escape(url)}">\n'
        elif part.get("type") in ("image", "image_url"):
            yield "<p><em>Image not included in this page</em></p>\n"
