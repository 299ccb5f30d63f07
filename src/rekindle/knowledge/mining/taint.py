"""Which calls bring words of strangers into a session: pages, mails, downloads, what others wrote.

What an agent does after it has read such words may be what they told it. So nothing here weighs what
was said; it is enough that it came in. What belongs to the agent is no stranger: its own functions
(`get_user_details`), files of the project, programs that it runs there, servers on this machine.

The first such call is made before a stranger had a say. So this need not withstand somebody who hides
it, but must know the ways that are used, and cost next to nothing for all other calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from rekindle.judging.rules import shell_commands
from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.text_patterns import words
from rekindle.judging.tool_kinds import kind_of
from rekindle.types import Message, ToolCall

from .command_skeleton import INTERPRETERS

_NO_RESULT = Message("tool")
_LONGEST = 100_000  # characters that are looked at

# Programs that get a page, a file or mail from elsewhere; and those that do with one of these words.
_FETCHERS = words(
    """
    curl wget wget2 aria2c axel lynx w3m links elinks http https httpie xh lwp-request ftp lftp yt-dlp
    youtube-dl gallery-dl himalaya fetchmail getmail mbsync offlineimap notmuch invoke-webrequest
    invoke-restmethod iwr irm
    """
)
_ASKERS: Mapping[str, frozenset[str]] = {
    "git": words("clone"), "hg": words("clone"), "svn": words("checkout co export cat"),
    "npm": words("view info show v search pack"), "pnpm": words("view info show search"),
    "yarn": words("info search"), "pip": words("download search index"),
    "pip3": words("download search index"), "cargo": words("search info"),
    "gem": words("search info fetch"), "brew": words("info search desc"),
    "apt": words("show search download"), "apt-get": words("source download"),
    "apt-cache": words("show search"), "docker": words("search"), "conda": words("search"),
    "helm": words("show search pull"), "hf": words("download"),
    "huggingface-cli": words("download"), "kaggle": words("datasets competitions"),
}  # fmt: skip
_FORGES = words("gh glab hub tea")
# What a forge answers to these is that it was done.
_DONE_THERE = words(
    "create merge close reopen edit comment review delete ready login logout status set"
)
_GETS = re.compile(
    r"""(?xi) \brequests\.(?:get|post|put|request|session)\b | \burllib(?:2|3|\.request)\b | \burlopen\b
    | \b(?:httpx|aiohttp|axios|undici|imaplib|poplib|feedparser|selenium|playwright|puppeteer)\b
    | \bhttp\.client\b | \bnode-fetch\b | \bfetch\( | \bhttps?\.get\( | \bnet::http\b | \bopen-uri\b
    | \blwp::  | \bweb_(?:search|extract|fetch|crawl)\b | \(\s*[rfbu]?["'`]https?://"""
)
_INSIDE = re.compile(r"[$<]\(([^()]*)\)")
_HERE = re.compile(r"(?i)\blocalhost\b|\b127\.0\.0\.1\b|\b0\.0\.0\.0\b|\[::1\]")
_ELSEWHERE = re.compile(
    r"(?i)\b(?:https?|ftp|git|ssh)://(?!(?:[^/@\s]*@)?(?:localhost\b|127\.0\.0\.1|0\.0\.0\.0|\[::1\]))"
)
# Folders where others put things, unless they are deep inside the project; and mail by its name.
_FOREIGN_FILE = re.compile(
    r"""(?xi) (?:^|[\s"'=:(,])
        (?: (?:(?:~|\$\{?\w+\}?|[a-z]:|/)[^\s"']{0,200}[/\\])?
            (?:downloads|attachments?|maildir|inbox)[/\\]
          | (?:/var/mail|/var/spool/mail|~/mail|~/\.mail)\b
          | [^\s"']{0,200}(?:/library/mail/|\.thunderbird/) )
    | [\w)-]\.(?:eml|mbox)\b"""
)

# Where none of these words stands, nothing comes from elsewhere: most calls need no closer look.
_SUSPECT = frozenset(
    word.encode()
    for word in _FETCHERS
    | _FORGES
    | {word for asked in _ASKERS.values() for word in asked}
    | words(
        """
        http https ftp requests urllib urllib2 urllib3 urlopen httpx aiohttp axios undici imaplib poplib
        feedparser selenium playwright puppeteer fetch node-fetch net open-uri lwp web_search
        web_extract web_fetch web_crawl client
        downloads attachment attachments maildir mail inbox thunderbird eml mbox
        """
    )
)
_SIGNS = b"\"'`()[]{}<>|&;,.:/\\=$!\n\t"
_APART = bytes(ord(" ") if byte in _SIGNS else byte for byte in bytes(range(256)).lower())

# Tools, by the words of their names.
_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_OUTSIDE = words(
    """
    mail email gmail outlook inbox imap slack discord telegram whatsapp msteams mattermost zulip message
    chat thread channel sms twitter tweet reddit mastodon bluesky linkedin facebook instagram youtube
    hackernews forum blog rss feed news article wikipedia wiki arxiv pubmed stackoverflow web website
    url http page site notion confluence jira asana trello zendesk intercom freshdesk salesforce hubspot
    airtable figma sentry github gitlab bitbucket gitea gdrive dropbox onedrive sharepoint calendar gcal
    comment issue ticket review post attachment download mcp
    """
)
_WITHIN = re.compile(r"mail|inbox|imap|slack|discord|telegram|tweet")  # also inside a longer word
_BESIDE = words("by with via using")  # what follows is given to the function, not got from it
# Verbs of functions that do something: their answer is about that. And of those that read.
_DOES = words(
    """
    send create update delete remove add set write post publish book cancel buy order pay transfer refund
    reply forward submit move rename assign close reopen merge push modify exchange return grant revoke
    schedule invite upload insert edit put patch mark archive start stop enable disable approve reject
    """
)
_READS = words(
    """
    get read list search fetch find view show query retrieve load open check lookup look download browse
    extract scrape crawl export receive poll summarize
    """
)
# Servers of tools that work on this machine, or keep what the agent itself wrote.
_LOCAL_SERVERS = words(
    """
    filesystem fs file files desktop commander ide serena acp terminal shell bash git sqlite memory
    thinking sequential time repl jupyter lsp editor local system rekindle todo private journal server
    """
)
_OWN_SHAPES = frozenset(("shell", "code", "edit", "note"))


def brings_in(call: ToolCall, folder: str) -> bool:
    """Does this call bring in what strangers wrote? `folder` is where the session works."""
    by_name = _by_name(call.name)
    if by_name is not None:
        return by_name
    shape = kind_of(call.name).shape
    if shape == "edit" and not _views(call):
        return False
    given = call.arguments
    text = given[:_LONGEST] if isinstance(given, str) else f"{given}"[:_LONGEST]
    said = text.encode("utf-8", "replace").replace(b"\\n", b" ").translate(_APART).split()
    if _SUSPECT.isdisjoint(said):
        return False
    if shape in ("shell", "code"):
        command = Evidence(call, _NO_RESULT).command[:_LONGEST]
        return (_gets if shape == "code" else _fetches)(command) or _is_foreign(text, folder)
    if shape != "search" and _ELSEWHERE.search(text) is not None:
        return True
    return _is_foreign(text, folder)


def _views(call: ToolCall) -> bool:
    """Some tools both show and change files."""
    given = call.arguments
    if isinstance(given, str):
        return '"view"' in given
    return given.get("command") == "view"


@lru_cache(maxsize=4_096)
def _by_name(tool: str) -> bool | None:
    """What the name of a tool tells by itself; None where it depends on what it is asked for."""
    kind = kind_of(tool)
    if kind.work == "research" or kind.shape in ("web", "agent"):
        return True
    name = [word.lower() for word in _NAME.findall(tool)]
    own = next((at for at, word in enumerate(name) if at and word in _BESIDE), len(name))
    name = name[:own]
    server = _server(tool, name)
    if not server <= _LOCAL_SERVERS:
        return None if kind.shape in _OWN_SHAPES else not _does(name)
    if kind.shape != "call" or server:
        return None
    if _does(name):
        return False
    singular = {word.removesuffix("s") for word in name} | set(name)
    return True if singular & _OUTSIDE or _WITHIN.search("".join(name)) else None


def _server(tool: str, name: list[str]) -> frozenset[str]:
    """The words in the name of the MCP server that a tool is of; none where it is of no server."""
    parts = [part for part in tool.split("__") if part]
    if len(parts) > 1:
        found = parts[1] if parts[0].lower() == "mcp" and len(parts) > 2 else parts[0]
        return frozenset(word.lower() for word in _NAME.findall(found))
    return frozenset(name[1:2]) if name[:1] == ["mcp"] else frozenset()


def _does(name: list[str]) -> bool:
    verb = next((word for word in name if word in _DOES or word in _READS), "")
    return verb in _DOES or name[:1] == ["issue"]


def _fetches(command: str) -> bool:
    steps = shell_commands.steps(command)
    inner = [step for text in _INSIDE.findall(command) for step in shell_commands.steps(text)]
    if any(_is_fetching(step.program.lower(), step.rest) for step in (*steps, *inner)):
        return True
    # A script in the command line, or one that is given an address.
    scripts = [step for step in steps if _is_interpreter(step.program)]
    if not scripts:
        return False
    return _gets(command) or any(_ELSEWHERE.search(step.rest) for step in scripts)


def _is_fetching(program: str, rest: str) -> bool:
    if program in _FETCHERS:
        return _ELSEWHERE.search(rest) is not None or _HERE.search(rest) is None
    said = [word for word in rest.split(None, 6)[:6] if word[0] != "-"][:2]
    if program in _FORGES:
        return bool(said) and not any(word in _DONE_THERE for word in said)
    asked = _ASKERS.get(program)
    return asked is not None and not asked.isdisjoint(said[: 2 if rest[:1] == "-" else 1])


def _is_interpreter(program: str) -> bool:
    return program in INTERPRETERS or program.startswith(("./", "python"))


def _gets(code: str) -> bool:
    if _GETS.search(code) is None:
        return False
    return _ELSEWHERE.search(code) is not None or _HERE.search(code) is None


def _is_foreign(text: str, folder: str) -> bool:
    """Does this name a file that others put there?"""
    inside = text.replace(folder, ".") if folder else text
    return _FOREIGN_FILE.search(inside) is not None
