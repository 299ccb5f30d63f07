"""The style that all pages share, and the start of a page: no scripts, no network.

`TOKENS` names colors, fonts and spaces, for light and dark; a page adds rules of its own and uses only
these names. `BASE` styles plain elements.
"""

from __future__ import annotations

from html import escape

_SHARED = """
--sans:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;
--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;
--small:.8125rem;--tiny:.75rem;--gap:1rem;--radius:10px;--page:64rem
""".strip()

_LIGHT = """
--bg:#faf9f7;--card:#fff;--sunken:#f3f0eb;--ink:#1f1c18;--soft:#6b645b;--line:#e5dfd6;
--accent:#a8481a;--accent-bg:#fbeee4;--link:#1f5fbf;
--good:#23794a;--good-bg:#e9f5ed;--bad:#bf2f2a;--bad-bg:#fdeeec;--warn:#8a5a00;--warn-bg:#fdf3da;
--user:#1f5fbf;--user-bg:#eef3fc;--user-line:#c9d9f5;--agent:#a8481a;
--bad-line:#f0c9c6;--warn-line:#ecd9a8;--add:#e3f4e6;--add-mark:#b4e2bd;--del:#fde8e6;--del-mark:#f6bdb8;
--keyword:#8a3ea8;--string:#1f7a3d;--comment:#716a61;--symbol:#1f5fbf;--number:#a04c00;
--c1:#c2571c;--c2:#2f6fb5;--c3:#5d8a3a;--c4:#8a5aa8;--c5:#b08a1e;--c6:#8c8378;--teal:#0d6e74
""".strip()

_DARK = """
--bg:#161513;--card:#1e1d1a;--sunken:#272521;--ink:#ebe7e0;--soft:#a29a8f;--line:#37332d;
--accent:#f0a06a;--accent-bg:#33241a;--link:#86b2ff;
--good:#6fca90;--good-bg:#1a2b21;--bad:#ff8a82;--bad-bg:#341d1b;--warn:#e8bc5c;--warn-bg:#32290f;
--user:#86b2ff;--user-bg:#1b2536;--user-line:#2f4468;--agent:#f0a06a;
--bad-line:#5a302c;--warn-line:#54441f;--add:#16301f;--add-mark:#28603a;--del:#3a1d1b;--del-mark:#74332e;
--keyword:#d09be8;--string:#8fd3a3;--comment:#a0988d;--symbol:#86b2ff;--number:#f0a868;
--c1:#e88a4f;--c2:#6ca5e8;--c3:#93c26c;--c4:#bd93da;--c5:#d9b74c;--c6:#9a9186;--teal:#6ccad2
""".strip()

TOKENS = f"""
:root{{color-scheme:light dark;{_SHARED};{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
""".strip()

# For pages whose reader can choose: `data-theme` on the root element wins over the system.
THEME_TOKENS = f"""
:root{{color-scheme:light dark;{_SHARED};{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
:root[data-theme=light]{{color-scheme:light;{_LIGHT}}}
:root[data-theme=dark]{{color-scheme:dark;{_DARK}}}
""".strip()

BASE = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 var(--sans)}
h1,h2,h3{line-height:1.25;overflow-wrap:anywhere}
a{color:var(--link)}
a:focus-visible,summary:focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:3px}
code,pre,kbd{font-family:var(--mono);font-size:var(--small)}
code{background:var(--sunken);padding:.1em .35em;border-radius:4px;overflow-wrap:anywhere}
pre{background:var(--sunken);padding:.75rem .9rem;border-radius:var(--radius);overflow:auto}
pre code{background:none;padding:0}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:baseline}
summary{cursor:pointer}
.num{text-align:right;font-variant-numeric:tabular-nums}
.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
.chip{display:inline-block;padding:.05rem .5rem;border-radius:1rem;font-size:var(--tiny);
background:var(--sunken);color:var(--soft);white-space:nowrap}
.chip.good{background:var(--good-bg);color:var(--good)}
.chip.bad{background:var(--bad-bg);color:var(--bad)}
.chip.warn{background:var(--warn-bg);color:var(--warn)}
@media print{:root{color-scheme:light}}
""".strip()

# Nothing is loaded and nothing runs, whatever a page contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render_head(title: str, style: str, policy: str = POLICY) -> str:
    """Return the start of a page up to its open body; `title` is escaped, `style` is added to ours."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>\n{TOKENS}\n{BASE}\n{style}\n</style>\n"
        "</head>\n<body>\n"
    )
