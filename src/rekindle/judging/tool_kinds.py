"""Classify tools by the names that known agents give them.

Two views of the same table: `work` is the kind that profiles count (code, file, research, terminal,
meta, general, bookkeeping), and `shape` is what the tool's result looks like to a judge:

    shell   output of commands          code    output of a script
    read    text that was read          search  hits in files
    edit    report of a change          web     pages, search results
    agent   prose of another agent      note    bookkeeping of the agent
    call    anything else: a function with its own kind of answer
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from rekindle.judging.rules.text_patterns import split_words
from rekindle.shell.command_reader import split_commands


class ToolKind(NamedTuple):
    """A tool's kind of work, and the shape of its results."""

    work: str
    shape: str


_UNKNOWN_KIND = ToolKind("general", "call")

# Names in lower case, without namespace and separators.
_TOOL_NAMES: Mapping[ToolKind, str] = {
    ToolKind("terminal", "shell"): """
        terminal bash shell sh zsh powershell pwsh cmd console execcommand exec execbash executebash
        executecommand executeshellcommand runshellcommand runcommand runterminalcmd runterminalcommand
        runinterminal shellcommand localshell writestdin bashoutput taskoutput readbash writebash
        stopbash killbash killshell listbash readpowershell writepowershell stoppowershell cmdrun
        containerexec terminalexec terminalrun bashtool shelltool runbash getterminaloutput
        sendterminaltext awaitshell unifiedexec process bashcommand""",
    ToolKind("code", "code"): """
        executecode codeexecution codeinterpreter python pythonexec pythonexecute runpython executepython
        pythoninterpreter ipython executeipythoncell runipython jupyter runcell runcode notebookexecute
        finalanswerpython javascripttool nodeexec runjs""",
    ToolKind("code", "call"): "skillmanage",
    ToolKind("file", "read"): """
        readfile read view viewfile readfiles readmanyfiles notebookread openfile open cat filepreview
        readnotebook viewimage readmediafile getfilecontents readtextfile fsread readmultiplefiles
        goto scrollup scrolldown fileread viewrange getfile""",
    ToolKind("file", "search"): """
        searchfiles grep glob rg ls listdir listdirectory listfiles find findfiles filesearch grepsearch
        searchfilecontent codebasesearch codesearch semanticsearch listcodedefinitionnames searchdir
        searchfile findfile directorytree searchcode fssearch fslist lsp workspacesymbol searchtext
        findfilebyname globfilesearch""",
    ToolKind("file", "edit"): """
        writefile patch write edit multiedit notebookedit applypatch applydiff editfile createfile create
        strreplace strreplaceeditor strreplacebasededittool strreplaceinfile replaceinfile replace insert
        insertcontent searchandreplace writetofile deletefile fswrite texteditor editor undoedit append
        insertedit inserteditintofile replacestringinfile multireplacestringinfile deletelines movefile
        copyfile createdirectory removefile newfile savefile editnotebook fileeditor filewrite fileedit
        reapply applyeditstofile notebookeditcell patchfile""",
    ToolKind("research", "web"): """
        websearch webextract webfetch fetch fetchurl fetchwebpage googlewebsearch googlesearch search
        browse browsenavigate browseinteractive gotourl openurl urlfetch curl httprequest webcrawl
        websearchexa getpage visitpage visitwebpage readurl readurlcontent searchweb viewwebdocument
        pagedown pageup findonpage browserun computer""",
    ToolKind("general", "agent"): """
        task agent delegate delegatetask spawnagent subagent newtask runsubagent dispatchagent waitagent
        waitforagent wait sendinput resumeagent closeagent delegatetoagent oracle librarian
        codebaseinvestigator readagent writeagent taskstop""",
    ToolKind("meta", "call"): "warmsession",
    ToolKind("bookkeeping", "note"): """
        clarify memory factstore factfeedback sessionsearch skillview skillslist todo todowrite todoread
        updateplan writetodos savememory taskcreate taskupdate tasklist taskget exitplanmode
        enterplanmode askuserquestion askuser question askfollowupquestion attemptcompletion think
        reportintent updatetodo sequentialthinking thinking skill invokeskill listskills toolsearch
        switchmode planexit planenter createplan storememory fetchcopilotclidocumentation
        plan requestuserinput managetodolist finish submit marktaskcomplete taskcomplete""",
}
_KIND_BY_NAME = {name: kind for kind, names in _TOOL_NAMES.items() for name in names.split()}
# Families with too many members to list.
_NAME_PATTERNS = (
    (re.compile(r"browser"), ToolKind("research", "web")),
    (
        re.compile(r"web(?:search|fetch|extract|crawl|read|scrape|page)"),
        ToolKind("research", "web"),
    ),
    (
        re.compile(r"^(?:tavily|firecrawl|exa|brave|perplexity|duckduckgo)"),
        ToolKind("research", "web"),
    ),
)
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_DATE_SUFFIX = re.compile(r"_\d{8}$")  # bash_20250124
_NAMESPACE = re.compile(r"^(?:mcp__.+?__|functions?[.:]|default_api[.:]|tools?[.:]|namespace[.:])")


@lru_cache(maxsize=4096)
def classify_tool(tool: str) -> ToolKind:
    """Return the kind of the tool with this name, whichever agent it belongs to."""
    lower = tool.strip().lower()
    bare = _DATE_SUFFIX.sub("", _NAMESPACE.sub("", lower))
    for name in (lower, bare, bare.rpartition(".")[2], bare.rpartition("__")[2]):
        if kind := _KIND_BY_NAME.get(_SEPARATORS.sub("", name)):
            return kind
    plain = _SEPARATORS.sub("", bare)
    return next((kind for family, kind in _NAME_PATTERNS if family.search(plain)), _UNKNOWN_KIND)


def get_tool_work(tool: str) -> str:
    """Return the kind of work that profiles count the tool under."""
    return classify_tool(tool).work


# Programs that run what the agent wrote, build it or test it.
_CODE_RUNNERS = split_words(
    """
    python python2 python3 pypy pypy3 ipython node deno bun ts-node tsx ruby perl php lua luajit julia
    Rscript R java javac kotlin kotlinc scala groovy clojure clj go cargo rustc gcc g++ cc c++ clang
    clang++ make cmake ninja meson bazel buck gradle gradlew mvn mvnw ant sbt lein dotnet msbuild swift
    swiftc xcodebuild zig nim ghc cabal stack runghc elixir mix erl iex rebar3 dart flutter pytest
    py.test tox nox jest vitest mocha ava jasmine karma cypress playwright rspec rake phpunit ctest gtest
    unittest nosetests behave cucumber tsc esbuild webpack vite rollup swc babel hardhat forge truffle
    sqlite3 psql mysql octave matlab manim jupyter nbconvert papermill just task mise turbo nx
    """
)
_SCRIPT = re.compile(
    r"(?:^|/)[\w.-]+\.(?:py|js|mjs|cjs|ts|sh|bash|rb|pl|php|lua|jl|R|exe|out|bin)$"
)
_PACKAGE_RUN = re.compile(r"^(?:run|test|start|exec|build|t|x|dlx|run-script|lint|dev)\b")
_PACKAGE_MANAGERS = frozenset(("npm", "pnpm", "yarn", "bunx", "npx", "pnpx"))


def runs_code(command: str) -> bool:
    """Return whether a shell command runs code: a script, a build, a test, an interpreter."""
    return any(_program_runs_code(step.program, step.arguments) for step in split_commands(command))


def _program_runs_code(program: str, rest: str) -> bool:
    if program in _PACKAGE_MANAGERS:
        return program in ("npx", "bunx", "pnpx") or _PACKAGE_RUN.match(rest) is not None
    if program in _CODE_RUNNERS:
        # Asking for the version does not run anything.
        return rest.strip() not in ("--version", "-V", "-v", "version", "--help")
    if program in ("bash", "sh", "zsh", "source", "."):
        return bool(rest.strip())
    return program.startswith("./") or _SCRIPT.search(program) is not None
