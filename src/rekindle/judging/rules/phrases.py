# ruff: noqa: E501  (a pattern stays on one line)
"""Sentences that open a failed result of a harness or tool.

Each is matched at the beginning of the result, after the wrappers in `_WRAPPERS`, so content that a
tool has read never counts. Where the same words could open a file or a page, the result must also be
short, as a tool's own message is. In the tables `…` matches any stretch of the same line.
"""

from __future__ import annotations

import re

from .evidence import Evidence
from .text_patterns import TextPattern, TextPatterns, exclude_source, parse_patterns
from .verdict import Outcome, classify_error, make_expected, make_failure

_WRAPPERS = (
    r"\s*+(?:<(?:tool_use_error|error|tool_error|system)>\s*+)?"
    r"(?:(?:Error|ERROR|error)(?: \[\w+\])?:\s++)?"
)
_MAX_MESSAGE_CHARS = 700


def _parse_table(
    text: str,
    kind: str = "",
    outcome: str = "error",
    confidence: float = 0.95,
    learned_from: tuple[str, ...] = (),
) -> tuple[TextPattern, ...]:
    return parse_patterns(
        text.replace("…", "[^\\n]{0,240}?"), kind, outcome, confidence, "", learned_from
    )


# The call did not run: a person said no.
DECLINED = _parse_table(
    r"""
    refused/unwanted     The user doesn't want to (?:proceed with|take) this (?:tool use|action)
    refused/user         (?:The )?[Uu]ser (?:has )?(?:rejected|denied|declined|dismissed|skipped|refused)\b
    refused/user-not     (?:The )?[Uu]ser (?:did not|does not|didn't|chose not to) (?:allow|approve|accept|want)
    refused/by-user      (?:`[^`\n]{0,400}` |[\w .'-]{0,60}?\b)(?:rejected|denied|declined|blocked|skipped) by (?:the |your )?user\b
    refused/codex        (?:exec command|patch|exec_command|apply_patch|command) (?:was )?rejected
    refused/codex-user   exec_command failed for .{0,2000}?[Rr]ejected by (?:the )?user\b
    refused/action       (?:The |This )?[Aa]ction (?:has been |was )?rejected
    """,
    "declined",
    "refused",
    0.97,
) + _parse_table(
    r"refused/user-chose  User (?:chose|decided|opted) to (?:stay|keep|reject|skip|cancel|stop)",
    "declined",
    "refused",
    0.97,
    ("claude-code",),
)

# The call did not run: a rule, a hook or a missing permission prevented it.
BLOCKED = _parse_table(
    r"""
    refused/permission   Permission (?:to use|for this|to \w+)\b…(?:denied|not (?:been )?granted)
    refused/requested    \w+ requested permissions? to\b…(?:haven't granted|denied|not granted)
    refused/approval     (?:This|The) (?:\w+ )?(?:command|tool|operation)\b…requires? …approval
    refused/by           (?:`[^`\n]{0,400}` |[\w .'-]{0,60}?\b)(?:rejected|denied|declined|blocked|skipped) by (?:the |your )?(?:policy|admin|hook|sandbox|rule|settings)\b
    refused/quoted       `[^`\n]{0,600}` (?:was )?rejected
    refused/codex-exec   exec_command failed for .{0,2000}?[Rr]ejected
    refused/tool         Tool (?:execution|call|use)?\b…(?:denied|rejected|blocked|not (?:allowed|permitted))\b
    refused/rule         The user has specified a rule which prevents
    refused/copilot      Permission denied and could not request permission
    refused/required     The tool call required approval
    refused/hook         (?:Pre|Post)ToolUse:\S+ (?:\[|hook)|Hook \S+ (?:denied|blocked)|\w+ operation blocked by hook
    refused/stopped      Execution stopped by \w+ hook
    refused/blocked      (?:BLOCKED|Blocked|DENIED)\b\s*[:(\-]
    refused/plan-mode    (?:You are in|Cannot …in|…not (?:allowed|available) in) [Pp]lan mode
    refused/directory    \w+ in '…' was blocked\.
    refused/not-allowed  (?:This|The) (?:command|tool|action|operation|path|file|domain)\b…(?:is not (?:allowed|permitted)|has been (?:blocked|denied))
    refused/action-rule  (?:The |This )?[Aa]ction (?:has been |was )?(?:denied|blocked)
    """,
    "blocked",
    "refused",
    0.97,
) + _parse_table(
    r"""
        refused/blocked-sign  \W{1,4}Blocked:\s
        refused/guard         [A-Z][\w .'-]{0,40}(?:[Gg]uard|[Hh]ook|[Pp]olicy|[Ss]andbox) (?:blocked|denied|refused|rejected|failed closed)\b
        """,
    "blocked",
    "refused",
    0.97,
    ("pi",),
)

# The call was pending or running, and was then stopped.
STOPPED = _parse_table(
    r"""
    stopped/request      \[Request interrupted by user
    stopped/aborted      aborted by user\b|<turn_aborted>|(?:The )?[Uu]ser (?:has )?(?:aborted|cancell?ed|interrupted)
    stopped/by           [\w .'-]{0,60}?\b(?:aborted|cancell?ed|interrupted) by (?:the )?user\b
    stopped/operation    \[?(?i:(?:Operation|Request) (?:was )?(?:cancell?ed|aborted|stopped|interrupted)\b)
    stopped/tool         Tool (?:execution|call|use) (?:was )?(?:aborted|cancell?ed|interrupted)
    stopped/command      (?:Command|Execution|Process) (?:was )?(?:aborted|cancell?ed|interrupted|killed)\b
    """,
    "stopped",
    "refused",
    0.97,
)

# The harness answers instead of the tool.
HARNESS = (
    *_parse_table(
        r"""
        sibling              Sibling tool call errored|Cancell?ed: parallel tool call
        sibling/cancelled    Cancell?ed due to\b
        """,
        "interrupted",
    ),
    *_parse_table(
        r"sandbox/denied  (?:sandbox (?:error|denied)|failed in sandbox|Sandbox…denied)",
        "permission",
    ),
    *_parse_table(
        r"""
        tool/none            No such tool\b|No tool (?:named|called|found)
        tool/unknown         (?:Unknown|Unrecognized|Unsupported|Invalid) (?:tool|function)\b(?! (?:arg|param|input|use|call id))
        tool/unsupported     unsupported (?:call|custom tool call)
        tool/not-found       Tool ['\"`]?[\w.:-]+['\"`]? (?:is )?(?:not (?:found|available|registered|defined|supported)|does not exist|unavailable)
        tool/unavailable     (?:Model|Agent) tried to call unavailable tool
        """,
        "unknown_tool",
    ),
    *_parse_table(
        r"""
        timeout/command      (?:Command|Tool|Request|Operation|Execution|Bash|Shell|Process)\b(?: \w+){0,2} (?:has )?timed[ -]?out
        timeout/the          The (?:command|operation|request|tool|script|last command)\b…timed[ -]?out
        timeout/upper        (?:EXECUTION|COMMAND) TIMED OUT
        timeout/after        Timed? ?out (?:after|waiting)|Timeout(?: (?:of|after|exceeded|waiting|while)|Error|:)
        timeout/exceeded     …exceeded (?:the )?(?:timeout|time limit)
        """,
        "timeout",
    ),
    *_parse_table(
        r"""
        arguments/validation  InputValidationError|Input validation error
        arguments/parse       (?:Failed|failed|Unable) to parse (?:function |tool )?(?:arguments|input|parameters)
        arguments/called      The …tool was called with invalid arguments
        """,
        "arguments",
    ),
    *_parse_table(
        r"""
        web/heading          ### (?:Error|Result\s+Error)\b(?!:?[ \w])
        harness/exec         (?:exec_command|write_stdin|apply_patch|shell|unified_exec) (?:failed|error)\b
        """
    ),
    *_parse_table(
        r"format/one-action  Please always provide EXACTLY ONE action",
        "arguments",
        learned_from=("mini-swe-agent",),
    ),
)

# The harness answers, but in words that a program may use too.
HARNESS_ERRORS = (
    *_parse_table(
        r"""
        arguments/failed      Validation (?:error|failed)
        arguments/invalid     (?:Invalid|Malformed|Bad|invalid) (?:tool )?(?:arguments?|parameters?|input|params|type|value)\b
        arguments/params      params (?:must|/)|The required parameter|The parameter `\w+`
        arguments/missing     [Mm]issing (?:required )?(?:parameter|argument|field|value|property)
        arguments/keyword     …(?:got an unexpected keyword argument|missing \d+ required (?:positional|keyword))
        arguments/property    …\bis a required property
        arguments/pydantic    \d+ validation errors? for\s
        arguments/tool-input  (?:Tool|Function) (?:input|arguments?|parameters?) (?:is|are|was|were|must|did)\b
        """,
        "arguments",
    ),
    *_parse_table(
        r"""
        mcp/error            MCP error\b|MCP (?:server|tool|client)\b…(?:error|fail|not connected|not found|timed out|disconnected)
        mcp/call             tool call (?:error|failed)
        api/error            API Error(?::|\s\()|(?:Anthropic|OpenAI|Gemini) API error
        api/limit            (?:Rate limit|Usage limit|Quota) (?:reached|exceeded)|Overloaded|Too many requests
        harness/spawn        (?:execution error|codex error|spawn failed|failed to (?:spawn|start|launch|execute|run)\s)
        harness/tool         (?:Tool|Function|Command|Action) (?:execution |call )?(?:failed|errored|crashed|error)\b(?::| with| after|\.|$)
        harness/internal     Internal (?:error|server error)\b
        """,
    ),
    *_parse_table(
        r"""
        format/response      (?:Your|The) (?:last )?(?:output|response|action) (?:was not|could not be|is not|must)\b…(?:format|pars|exactly one)
        format/error         (?:Format|Parse|Parsing) error\b|No tool calls? (?:were )?found
        """,
        "arguments",
    ),
)

# Tools that read, search and edit files.
FILES = (
    *_parse_table(
        r"""
        file/missing         (?:The |This )?(?:[Ff]ile|[Pp]ath|[Dd]irectory|Folder|Notebook)\b…(?:does not|doesn't) exist
        file/not-found       (?:The |This )?(?:[Ff]ile|[Pp]ath|[Dd]irectory|Folder|Notebook)\b…not (?:be )?found
        file/no-such         (?:No|no) such (?:file|directory)
        file/not-a           (?:The |This )?(?:[Ff]ile|[Pp]ath|[Dd]irectory)\b…is not an? (?:file|directory|absolute|valid|regular)
        file/outside         …\b(?:is outside|must be within|not (?:with)?in(?:side)?) (?:the|of|your|any|allowed|one)\b…(?:workspace|director|project|root|working)
        file/absolute        …\b(?:must be (?:an )?absolute|is not an absolute path|path must be|should be an absolute)
        file/directory       …\b(?:is a directory|not a directory)\b
        file/ignored         …\bis ignored by\b
        """,
        "path",
    ),
    *_parse_table(
        r"""
        file/errno           E(?:NOENT|ISDIR|NOTDIR|ACCES|PERM|EXIST|LOOP|INVAL|MFILE|NAMETOOLONG)\b|\[Errno \d+\]
        file/os              Is a directory|Not a directory|Permission denied\b|Access denied|Operation not permitted
        file/cannot          (?:Cannot|Can't|Could not|Couldn't|Unable to|Failed to|failed to) (?:access|read|open|find|stat|list|write|create|load|edit|delete|locate|search|parse|apply|replace|process|resolve|save|update|modify)\b
        file/error-while     Error (?:reading|accessing|opening|writing|editing|listing|searching|creating|while|during|executing|applying|performing|processing|getting)\b
        """,
    ),
    *_parse_table(
        r"""
        file/too-large       File\b…(?:exceeds|too large(?! to read at once)|too big)\b
        file/range           (?:Offset|Invalid `?(?:view_range|path|offset|line|insert_line|old_str|command)\b)
        file/binary          (?:This tool cannot read|Cannot (?:read|display)|File (?:is|appears to be))\b…binary|Binary file
        search/pattern       (?:rg|ripgrep|grep|regex)(?:: | )(?:error|parse|failed)|regex parse error|Invalid (?:regex|pattern|regular expression|glob)
        """,
        "arguments",
    ),
)

# Tools that edit files.
EDITS = (
    *_parse_table(
        r"""
        edit/string          String to replace not found|(?:The )?(?:old_?[sS]tr(?:ing)?|oldString)\b…not (?:be )?found
        edit/target          (?:The )?(?:specified |provided )?(?:search (?:block|text|string)|[Tt]arget (?:text|string|content)|original text|exact text|old text|context|anchor|hunk)\b…(?:not (?:be )?found|no match|not unique|did not match|does not match|does not exist)
        edit/verbatim        No replacement was performed|…did not appear verbatim
        edit/could-not       (?:Could not|Couldn't|Failed to|Cannot|Unable to|failed to) (?:find|locate|match|edit|apply|replace|modify|perform)\b
        edit/count           (?:Found|Expected|Multiple|There (?:are|were)) …(?:match|occurrence|replacement)(?:e?s)?\b|\d+ occurrences? (?:found|of)
        edit/same            No changes? (?:to (?:make|apply)|made|needed|detected|were made)|…(?:identical|exactly the same|must be different)\b
        edit/unread          File\b…(?:has not been read|must be read)|(?:You )?(?:[Mm]ust|need to) (?:first )?(?:use …)?read\b
        edit/changed         File\b…(?:has been (?:unexpectedly )?modified|was modified|changed) since
        edit/unexpected      File has been (?:unexpectedly )?modified
        edit/verification    apply_patch verification failed|Failed to find (?:expected lines|context)
        edit/patch           (?:[Pp]atch|[Dd]iff|Hunk)\b…(?:failed|rejected|invalid|does not apply|could not|error)\b|patch:\s
        edit/bad-patch       [Ii]nvalid (?:patch|diff|hunk|context)|The (?:last|first) line of the patch
        edit/exists          …\balready exists\b
        """,
        "edit",
    ),
    *_parse_table(
        r"edit/syntax  Your proposed edit has introduced|[^\n]{0,60}?(?:new )?syntax error",
        "syntax",
    ),
    *_parse_table(r"edit/error  \[?ERROR\b"),
)

# Tools that access the network.
WEB = (
    *_parse_table(
        r"""
        web/request          (?:Request|Fetch|HTTP(?: request)?|The request) (?:failed|error|returned an error)\b
        web/status           (?:HTTP|Status)(?: (?:status|error|code))*:? ?(?:Code )?[45]\d\d\b|[45]\d\d (?:Client |Server )?Error
        web/non-2xx          StatusCode: non 2xx|(?:[Ss]tatus code|HTTP):? ?[45]\d\d
        """,
        "service",
    ),
    *_parse_table(
        r"""
        web/unable           [^\n]{0,40}?(?:unable|failed|not able) to (?:fetch|verify|load|retrieve|access|connect|reach|navigate|open|resolve|download|search|extract)\b
        web/could-not        (?:Could not|Cannot|Can't) (?:fetch|load|access|retrieve|open|reach|connect)\b
        """,
        "network",
    ),
    *_parse_table(
        r"""
        web/errno            (?:getaddrinfo|connect|read|write) E[A-Z]+|E(?:CONN|TIMEDOUT|NOTFOUND|AI_)|net::ERR_
        web/client           fetch failed|socket hang up|unable to (?:get local issuer|verify the first)|self.signed certificate|maxContentLength
        web/url              Invalid URL|Only absolute URLs|URL (?:must|is not)
        web/page             (?:page|locator|browser\w*)\.\w+:\s|Ref …not found|Timeout \d+ms exceeded
        web/browser          No (?:browser|page|tab) (?:is )?(?:open|available|found)|Browser\b…(?:closed|not (?:open|installed|running))
        """,
    ),
)

# Functions with their own result format.
CALLS = (
    *_parse_table(
        r"""
        call/error           (?i:errors?)\b\s*(?::|!|- |– |executing|calling|running|occurred|while|during|in tool|from tool|code|(?!handling)\w+ing\b)
        call/mark            ❌|✗|✖|⚠️ ?(?:Error|Failed)
        call/failed          Fail(?:ed|ure)\b(?: to\b|:| -|\.| with)|FAILED\b|fatal:\s
        call/unexpected      (?i:(?:An |Unexpected |Internal |Unhandled |Runtime |Fatal )+(?:error|exception|failure)\b)
        call/exception       [Ee]xception(?::| in| occurred| while)|[A-Z]\w*(?:\.\w+)*(?:Error|Exception)\b(?::|\()
        call/traceback       Traceback \(most recent call last\)
        call/cannot          (?:Unable to|Could not|Couldn't|Cannot|Can't) \w+
        """,
    ),
    *_parse_table(
        r"""
        call/unknown         (?:Unknown|Unsupported|Unrecognized) (?:action|command|operation|method|option|argument|key|type)\b
        call/no-such         (?:No|Unknown) (?:such )?(?:agent|session|process|task|skill|resource|user|order|item|reservation|thread)\b…(?:found|exists?|with|named|:)
        """,
        "arguments",
    ),
)

# Tools that manage running shells.
SHELLS = _parse_table(
    r"""
    shell/none           (?:No|Unknown|Invalid) (?:active |running |such |background )?(?:shell|session|process|command|task|terminal)\b…(?:found|with|id|ID|exists?)
    shell/gone           (?:Shell|Session|Process|Task|Terminal|shellId:?)\b…(?:not found|does not exist|is not running|already (?:stopped|completed|exited|closed|been)|cannot be)
    """,
    "arguments",
    learned_from=("copilot",),
)

# Tools that delegate to other agents.
AGENTS = _parse_table(
    r"""
    agent/error          (?:Error|ERROR)\s*:
    agent/unknown        (?:Unknown|No such) (?:agent|subagent)|Agent type …not found
    agent/failed         (?:Agent|Task|Sub-?agent)\b…(?:failed|not found|errored|crashed|terminated|timed out)\b(?: with|:|\.|$)
    agent/not-started    Failed to (?:spawn|start|run|launch|create|resume|find)\b
    """,
)

# A search that ran and found nothing.
_EMPTY_SEARCH = re.compile(
    r"\s*(?:\(?No (?:matches|results?|files?|hits?|search results|references|occurrences|entries)\b[^\n]{0,80}"
    r"|Found 0 |0 (?:matches|results|files)\b|no matches|Total(?: results)?: 0\b|Nothing found)",
    re.IGNORECASE,
)


# Every sentence in the tables from HARNESS_ERRORS on contains one of these.
_FAILURE_HINTS = (
    "error", "fail", "not ", "n't", "no ", "denied", "cannot", "could", "unable", "invalid", "unknown", "missing",
    "exceed", "already", "multiple", "match", "occurrence", "same", "must", "exist", "outside", "binary",
    "director", "since", "modified", "too ", "enoent", "errno", "eacces", "etimedout", "econn", "enotfound", "limit",
    "overload", "require", "malformed", "bad ", "timeout", "http", "status", "certificate", "socket", "url", "❌", "✗",
    "✖", "exception", "traceback", "fatal", "unsupported", "unrecognized", "offset", "ignored", "expected", "eisdir",
    "terminated", "crash", "params", "parameter", "argument", "without", "[err", "eperm", "e: ", "regex", "net::",
    "locator", "page.", "patch", "unexpected",
)  # fmt: skip


def has_failure_hint(text: str) -> bool:
    """Return whether the text contains any word that could indicate a failure."""
    low = text[:600].lower()
    return any(word in low for word in _FAILURE_HINTS)


class PhraseRules:
    """The tables above, compiled for each shape of tool."""

    def __init__(self, excluded_source: str | None = None) -> None:
        def compile_tables(*tables: tuple[TextPattern, ...]) -> TextPatterns:
            patterns = exclude_source(
                [pattern for table in tables for pattern in table], excluded_source
            )
            return TextPatterns(patterns, 0, _WRAPPERS)

        harness = exclude_source((*DECLINED, *BLOCKED, *STOPPED, *HARNESS), excluded_source)
        self.harness = TextPatterns(harness, re.DOTALL, _WRAPPERS)
        # Specific tables come before general ones.
        self._shapes = {
            "shell": compile_tables(HARNESS_ERRORS, SHELLS),
            "read": compile_tables(HARNESS_ERRORS, FILES),
            "search": compile_tables(HARNESS_ERRORS, FILES),
            "edit": compile_tables(HARNESS_ERRORS, EDITS, FILES, CALLS),
            "web": compile_tables(HARNESS_ERRORS, WEB, CALLS),
            "agent": compile_tables(HARNESS_ERRORS, AGENTS),
            "note": compile_tables(HARNESS_ERRORS, AGENTS),
            "call": compile_tables(HARNESS_ERRORS, WEB, CALLS, FILES),
        }

    def judge(self, evidence: Evidence) -> Outcome | None:
        """Judge the call by the sentence that opens its result, if it is a known one."""
        text = evidence.text[:4_000].lstrip()
        if found := self.harness.match(text):
            return _build_outcome(found, text, evidence.shape)
        shape = evidence.shape
        if shape == "shell":
            found = self._match_shape(shape, text.split("\n", 1)[0])
            # If the call runs a command, the text is the command's own output.
            return None if found and evidence.command else found
        max_chars = (
            _MAX_MESSAGE_CHARS
            if shape in ("read", "search", "web", "agent")
            else _MAX_MESSAGE_CHARS * 4
        )
        if len(evidence.text) > max_chars:
            return None
        return self._match_shape(shape, text) or judge_empty_search(evidence)

    def _match_shape(self, shape: str, text: str) -> Outcome | None:
        table = self._shapes.get(shape)
        pattern = table.match(text) if table and has_failure_hint(text) else None
        return _build_outcome(pattern, text, shape) if pattern else None


def judge_empty_search(evidence: Evidence) -> Outcome | None:
    """Judge a search tool that found nothing: this is an answer, not a failure."""
    if evidence.shape in ("search", "web") and _EMPTY_SEARCH.match(evidence.text[:200]):
        return make_expected("search/no-hit", 0.95, failed=False)
    return None


# The error kind to assume when the text does not name one.
DEFAULT_KINDS = {"edit": "edit", "call": "arguments"}


def _build_outcome(pattern: TextPattern, text: str, shape: str) -> Outcome:
    kind = pattern.kind or classify_error(text[:600], DEFAULT_KINDS.get(shape, "command"))
    return make_failure(kind, pattern.outcome, pattern.name, pattern.confidence)
