"""What a rule says about a call, and whose mistake it was."""

from __future__ import annotations

import re
from typing import NamedTuple

OUTCOMES = ("ok", "error", "expected", "refused", "unknown")
AGENT = ("arguments", "unknown_tool", "path", "edit", "permission", "syntax", "command")
ENVIRONMENT = ("network", "rate_limit", "timeout", "service", "interrupted", "resources")
_FAULT: dict[str, str] = {
    **dict.fromkeys(AGENT, "agent"),
    **dict.fromkeys(ENVIRONMENT, "environment"),
}


class Outcome(NamedTuple):
    """How a call ended. `failed` is None where nothing speaks; `fault` follows from the kind."""

    outcome: str
    failed: bool | None
    error_kind: str | None
    fault: str | None
    rule: str
    confidence: float


def ok(rule: str, confidence: float) -> Outcome:
    return Outcome("ok", False, None, None, rule, confidence)


def unknown(rule: str) -> Outcome:
    return Outcome("unknown", None, None, None, rule, 0.0)


def error(kind: str, rule: str, confidence: float) -> Outcome:
    return Outcome("error", True, kind, _FAULT.get(kind), rule, confidence)


def refused(kind: str, rule: str, confidence: float) -> Outcome:
    return Outcome("refused", True, kind, _FAULT.get(kind), rule, confidence)


def expected(rule: str, confidence: float, *, failed: bool) -> Outcome:
    """It ran and said no: a search without a hit has not failed, a red test run has."""
    return Outcome("expected", failed, None, None, rule, confidence)


def of_kind(kind: str, outcome: str, rule: str, confidence: float) -> Outcome:
    """A failure of the outcome that a pattern declares."""
    if outcome == "refused":
        return refused(kind, rule, confidence)
    if outcome == "expected":
        return expected(rule, confidence, failed=True)
    return error(kind, rule, confidence)


# Told apart only after a call is known to have failed, on the lines that say so: `kind` and then
# what is found in such lines, in small letters, separated by commas. The first kind that fits counts.
_WORDS = """
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
_KINDS = tuple(
    (word, kind)
    for kind, _, listed in (line.partition(": ") for line in _WORDS.strip().splitlines())
    for word in listed.split(", ")
)
_STATUS = re.compile(r"(?:http|status|code|error)\D{0,12}\b(?:(429|529)|(40[134]|407)|50[0234])\b")


def kind_from(text: str, otherwise: str = "command") -> str:
    """The kind of error that the lines which tell of it speak of."""
    low = text.lower()
    if status := _STATUS.search(low):
        return "rate_limit" if status[1] else "service"
    return next((kind for word, kind in _KINDS if word in low), otherwise)
