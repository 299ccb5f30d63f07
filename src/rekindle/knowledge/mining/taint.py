"""Detect calls that read untrusted text: pages, mails, downloads, anything others wrote.

What an agent does after reading such text may follow instructions in it, so its content is not weighed:
reading it is enough to taint the session. The agent's own functions (`get_user_details`), project
files, programs run there, and servers on this machine are trusted.

The first such call is made before any untrusted text was read. So this need not withstand evasion, but
it must know the usual ways and cost next to nothing for all other calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.text_patterns import split_words
from rekindle.judging.tool_kinds import classify_tool
from rekindle.shell.command_reader import split_commands, split_substitutions
from rekindle.shell.wrappers import SHELLS, is_interpreter
from rekindle.types import Message, ToolCall

_NO_RESULT = Message("tool")
_MAX_CHARS = 100_000  # of the arguments

# Programs that fetch a page, a file or mail; and those that do with one of these subcommands.
_FETCHERS = split_words(
    """
    curl wget wget2 aria2c axel lynx w3m links elinks http https httpie xh lwp-request ftp lftp yt-dlp
    youtube-dl gallery-dl himalaya fetchmail getmail mbsync offlineimap notmuch invoke-webrequest
    invoke-restmethod iwr irm
    """
)
_FETCHING_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    "git": split_words("clone"), "hg": split_words("clone"),
    "svn": split_words("checkout co export cat"),
    "npm": split_words("view info show v search pack"), "pnpm": split_words("view info show search"),
    "yarn": split_words("info search"), "pip": split_words("download search index"),
    "pip3": split_words("download search index"), "cargo": split_words("search info"),
    "gem": split_words("search info fetch"), "brew": split_words("info search desc"),
    "apt": split_words("show search download"), "apt-get": split_words("source download"),
    "apt-cache": split_words("show search"), "docker": split_words("search"),
    "conda": split_words("search"),
    "helm": split_words("show search pull"), "hf": split_words("download"),
    "huggingface-cli": split_words("download"), "kaggle": split_words("datasets competitions"),
}  # fmt: skip
_FORGES = split_words("gh glab hub tea")
# A forge only confirms these.
_FORGE_ACTIONS = split_words(
    "create merge close reopen edit comment review delete ready login logout status set"
)
_HTTP_CODE = re.compile(
    r"""(?xi) \brequests\.(?:get|post|put|request|session)\b | \burllib(?:2|3|\.request)\b | \burlopen\b
    | \b(?:httpx|aiohttp|axios|undici|imaplib|poplib|feedparser|selenium|playwright|puppeteer)\b
    | \bhttp\.client\b | \bnode-fetch\b | \bfetch\( | \bhttps?\.get\( | \bnet::http\b | \bopen-uri\b
    | \blwp::  | \bweb_(?:search|extract|fetch|crawl)\b | \(\s*[rfbu]?["'`]https?://"""
)
_LOCAL_HOST = re.compile(r"(?i)\blocalhost\b|\b127\.0\.0\.1\b|\b0\.0\.0\.0\b|\[::1\]")
_REMOTE_URL = re.compile(
    r"(?i)\b(?:https?|ftp|git|ssh)://(?!(?:[^/@\s]*@)?(?:localhost\b|127\.0\.0\.1|0\.0\.0\.0|\[::1\]))"
)
# Folders with files from others, unless deep inside the project; and mail files.
_FOREIGN_FILE = re.compile(
    r"""(?xi) (?:^|[\s"'=:(,])
        (?: (?:(?:~|\$\{?\w+\}?|[a-z]:|/)[^\s"']{0,200}[/\\])?
            (?:downloads|attachments?|maildir|inbox)[/\\]
          | (?:/var/mail|/var/spool/mail|~/mail|~/\.mail)\b
          | [^\s"']{0,200}(?:/library/mail/|\.thunderbird/) )
    | [\w)-]\.(?:eml|mbox)\b"""
)

# Without any of these words nothing is fetched: most calls need no closer look.
_HINT_WORDS = frozenset(
    word.encode()
    for word in _FETCHERS
    | _FORGES
    | {word for asked in _FETCHING_SUBCOMMANDS.values() for word in asked}
    | split_words(
        """
        http https ftp requests urllib urllib2 urllib3 urlopen httpx aiohttp axios undici imaplib poplib
        feedparser selenium playwright puppeteer fetch node-fetch net open-uri lwp web_search
        web_extract web_fetch web_crawl client
        downloads attachment attachments maildir mail inbox thunderbird eml mbox
        """
    )
)
_SEPARATOR_BYTES = b"\"'`()[]{}<>|&;,.:/\\=$!\n\t"
_SEPARATOR_TABLE = bytes(
    ord(" ") if byte in _SEPARATOR_BYTES else byte for byte in bytes(range(256)).lower()
)

# Tools by the words in their names.
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_OUTSIDE_WORDS = split_words(
    """
    mail email gmail outlook inbox imap slack discord telegram whatsapp msteams mattermost zulip message
    chat thread channel sms twitter tweet reddit mastodon bluesky linkedin facebook instagram youtube
    hackernews forum blog rss feed news article wikipedia wiki arxiv pubmed stackoverflow web website
    url http page site notion confluence jira asana trello zendesk intercom freshdesk salesforce hubspot
    airtable figma sentry github gitlab bitbucket gitea gdrive dropbox onedrive sharepoint calendar gcal
    comment issue ticket review post attachment download mcp
    """
)
_OUTSIDE_PARTS = re.compile(
    r"mail|inbox|imap|slack|discord|telegram|tweet"
)  # also inside longer words
_PREPOSITIONS = split_words("by with via using")  # what follows is an input, not the result
# Verbs of functions that act, whose result only confirms it; and of those that read.
_ACTION_VERBS = split_words(
    """
    send create update delete remove add set write post publish book cancel buy order pay transfer refund
    reply forward submit move rename assign close reopen merge push modify exchange return grant revoke
    schedule invite upload insert edit put patch mark archive start stop enable disable approve reject
    """
)
_READ_VERBS = split_words(
    """
    get read list search fetch find view show query retrieve load open check lookup look download browse
    extract scrape crawl export receive poll summarize
    """
)
# Servers that work on this machine, or store what the agent itself wrote.
_LOCAL_SERVERS = split_words(
    """
    filesystem fs file files desktop commander ide serena acp terminal shell bash git sqlite memory
    thinking sequential time repl jupyter lsp editor local system rekindle todo private journal server
    """
)
_OWN_SHAPES = frozenset(("shell", "code", "edit", "note"))


def reads_untrusted_text(call: ToolCall, folder: str) -> bool:
    """Return whether this call reads untrusted text; `folder` is where the session works."""
    verdict_by_name = _judge_by_name(call.name)
    if verdict_by_name is not None:
        return verdict_by_name
    shape = classify_tool(call.name).shape
    if shape == "edit" and not _is_view(call):
        return False
    arguments = call.arguments
    text = arguments[:_MAX_CHARS] if isinstance(arguments, str) else f"{arguments}"[:_MAX_CHARS]
    tokens = (
        text.encode("utf-8", "replace").replace(b"\\n", b" ").translate(_SEPARATOR_TABLE).split()
    )
    if _HINT_WORDS.isdisjoint(tokens):
        return False
    if shape in ("shell", "code"):
        command = Evidence(call, _NO_RESULT).command[:_MAX_CHARS]
        return (_code_fetches if shape == "code" else _command_fetches)(
            command
        ) or _names_foreign_file(text, folder)
    if shape != "search" and _REMOTE_URL.search(text) is not None:
        return True
    return _names_foreign_file(text, folder)


def _is_view(call: ToolCall) -> bool:
    """Return whether a tool that both shows and changes files is only showing one."""
    arguments = call.arguments
    if isinstance(arguments, str):
        return '"view"' in arguments
    return arguments.get("command") == "view"


@lru_cache(maxsize=4_096)
def _judge_by_name(tool: str) -> bool | None:
    """Judge a tool by its name; return None if it depends on the arguments."""
    kind = classify_tool(tool)
    if kind.work == "research" or kind.shape in ("web", "agent"):
        return True
    words_of_name = [word.lower() for word in _NAME_WORD.findall(tool)]
    end = next(
        (index for index, word in enumerate(words_of_name) if index and word in _PREPOSITIONS),
        len(words_of_name),
    )
    words_of_name = words_of_name[:end]
    server = _get_server_words(tool, words_of_name)
    if not server <= _LOCAL_SERVERS:
        return None if kind.shape in _OWN_SHAPES else not _is_action(words_of_name)
    if kind.shape != "call" or server:
        return None
    if _is_action(words_of_name):
        return False
    singular = {word.removesuffix("s") for word in words_of_name} | set(words_of_name)
    return (
        True if singular & _OUTSIDE_WORDS or _OUTSIDE_PARTS.search("".join(words_of_name)) else None
    )


def _get_server_words(tool: str, name: list[str]) -> frozenset[str]:
    """Return the words in the name of the tool's MCP server, if it has one."""
    parts = [part for part in tool.split("__") if part]
    if len(parts) > 1:
        found = parts[1] if parts[0].lower() == "mcp" and len(parts) > 2 else parts[0]
        return frozenset(word.lower() for word in _NAME_WORD.findall(found))
    return frozenset(name[1:2]) if name[:1] == ["mcp"] else frozenset()


def _is_action(name: list[str]) -> bool:
    verb = next((word for word in name if word in _ACTION_VERBS or word in _READ_VERBS), "")
    return verb in _ACTION_VERBS or name[:1] == ["issue"]


def _command_fetches(command: str) -> bool:
    steps = split_commands(command)
    every_step = (*steps, *split_substitutions(command))
    if any(_is_fetch_command(step.program.lower(), step.arguments) for step in every_step):
        return True
    # A script in the command line, or one that gets a URL.
    scripts = [step for step in steps if _runs_script(step.program)]
    if not scripts:
        return False
    return _code_fetches(command) or any(_REMOTE_URL.search(step.arguments) for step in scripts)


def _is_fetch_command(program: str, rest: str) -> bool:
    if program in _FETCHERS:
        return _REMOTE_URL.search(rest) is not None or _LOCAL_HOST.search(rest) is None
    operands = [word for word in rest.split(None, 6)[:6] if word[0] != "-"][:2]
    if program in _FORGES:
        return bool(operands) and not any(word in _FORGE_ACTIONS for word in operands)
    subcommands = _FETCHING_SUBCOMMANDS.get(program)
    return subcommands is not None and not subcommands.isdisjoint(
        operands[: 2 if rest[:1] == "-" else 1]
    )


def _runs_script(program: str) -> bool:
    return is_interpreter(program) or program in SHELLS or program.startswith("./")


def _code_fetches(code: str) -> bool:
    if _HTTP_CODE.search(code) is None:
        return False
    return _REMOTE_URL.search(code) is not None or _LOCAL_HOST.search(code) is None


def _names_foreign_file(text: str, folder: str) -> bool:
    """Return whether the text names a file that others put there."""
    inside = text.replace(folder, ".") if folder else text
    return _FOREIGN_FILE.search(inside) is not None
