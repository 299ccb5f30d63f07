"""The outcome that a rule returns for a call, and whose fault it was."""

from __future__ import annotations

import re
from typing import NamedTuple

OUTCOMES = ("ok", "error", "expected", "refused", "unknown")
AGENT_ERRORS = ("arguments", "unknown_tool", "path", "edit", "permission", "syntax", "command")
REFUSAL_KINDS = ("declined", "blocked", "stopped")  # by a person, by a rule, while it ran
ENVIRONMENT_ERRORS = ("network", "rate_limit", "timeout", "service", "interrupted", "resources")
_FAULT_BY_KIND: dict[str, str] = {
    **dict.fromkeys(AGENT_ERRORS, "agent"),
    **dict.fromkeys(ENVIRONMENT_ERRORS, "environment"),
}


class Outcome(NamedTuple):
    """The outcome of a call. `failed` is None if it is unknown or was refused.

    `fault` follows from the error kind; a refusal has one of `REFUSAL_KINDS` and is nobody's fault.
    """

    outcome: str
    failed: bool | None
    error_kind: str | None
    fault: str | None
    rule: str
    confidence: float


def make_ok(rule: str, confidence: float) -> Outcome:
    """Return the outcome of a call that succeeded."""
    return Outcome("ok", False, None, None, rule, confidence)


def make_unknown(rule: str) -> Outcome:
    """Return the outcome of a call that no rule can judge."""
    return Outcome("unknown", None, None, None, rule, 0.0)


def make_error(kind: str, rule: str, confidence: float) -> Outcome:
    """Return the outcome of a call that failed."""
    return Outcome("error", True, kind, _FAULT_BY_KIND.get(kind), rule, confidence)


def make_refused(kind: str, rule: str, confidence: float) -> Outcome:
    """Return the outcome of a call that was refused or stopped: it neither worked nor failed."""
    return Outcome("refused", None, kind, None, rule, confidence)


def make_expected(rule: str, confidence: float, *, failed: bool) -> Outcome:
    """Return the outcome of a call that ran and answered no.

    A search without a match has not failed, a failing test run has.
    """
    return Outcome("expected", failed, None, None, rule, confidence)


def make_failure(kind: str, outcome: str, rule: str, confidence: float) -> Outcome:
    """Return a failure or a refusal, as the pattern declares."""
    if outcome == "refused":
        return make_refused(kind, rule, confidence)
    if outcome == "expected":
        return make_expected(rule, confidence, failed=True)
    return make_error(kind, rule, confidence)


# Applied only to the error lines of a call that is known to have failed. Each line holds a kind and
# its words in lower case, separated by commas. The first match wins.
_ERROR_WORDS = """
rate_limit: rate limit, rate-limit, rate_limit, ratelimit, too many requests, quota exceeded
rate_limit: overloaded
timeout: timed out, time out, timedout, etimedout, deadline exceeded, timeout of
timeout: timeout exceeded, timeouterror
network: no such host, could not resolve, couldn't resolve, enotfound, eai_again, econnrefused
network: econnreset, connection refused, connection reset, network is unreachable
network: name resolution, socket hang up, fetch failed, error connecting to
network: unable to access 'http, failed to connect, no route to host, network error
network: issuer certificate, certificate verify, certificate has expired, signed certificate
service: docker daemon, docker api, service unavailable, internal server error, bad gateway
service: server closed, not connected, is the server running, database is locked
resources: no space left, out of memory, cannot allocate memory, enospc, enomem, disk quota
resources: heap limit
syntax: syntaxerror, syntax error, unexpected token, parse error, indentationerror
syntax: unexpected eof, undefined:, build failed, could not compile, error ts, error[e, : error:
syntax: undefined name, nameerror, unterminated, does not parse, compilation failed
syntax: cannot find symbol
permission: permission denied, operation not permitted, eacces, eperm, not allowed
permission: read-only file system, unauthorized, forbidden, authentication failed
permission: authentication required, access denied, not logged in
path: no such file, enoent, does not exist, not a directory, is a directory, eisdir
path: cannot access, file not found, cannot find the path, cannot find the file
path: no matches found, filenotfound, can't open file, cannot find module, no module named
path: modulenotfound, pathspec, cannot open
arguments: usage:, unrecognized option, unrecognized argument, unknown option, unknown flag
arguments: unknown command, unknown argument, invalid option, invalid argument, invalid value
arguments: invalid choice, illegal option, missing required, missing argument, required argument
arguments: required parameter, too many arguments, too few arguments, unexpected argument
arguments: requires an argument
"""
_KIND_BY_WORD = tuple(
    (word, kind)
    for kind, _, listed in (line.partition(": ") for line in _ERROR_WORDS.strip().splitlines())
    for word in listed.split(", ")
)
_HTTP_STATUS = re.compile(
    r"(?:http|status|code|error)\D{0,12}\b(?:(429|529)|(40[134]|407)|50[0234])\b"
)


def classify_error(text: str, default: str = "command") -> str:
    """Return the kind of error that the text describes."""
    lower = text.lower()
    if status := _HTTP_STATUS.search(lower):
        return "rate_limit" if status[1] else "service"
    return next((kind for word, kind in _KIND_BY_WORD if word in lower), default)
