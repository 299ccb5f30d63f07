"""What must not be kept, one subject per file.

    spans.py      what a rule looks at, and what it answers
    stems.py      where the literals stand that rules wait for
    chance.py     is this text random, a placeholder, a digest?
    names.py      which names announce a secret: `db_password`, `apiKey`, not `token_count`
    literal.py    is the value behind such a name the secret, or code that speaks of it?
    assigned.py   a name and its value: code, settings, JSON, YAML, XML, options of commands
    nearby.py     random text in the same line as a secret's name
    providers.py  keys and tokens that are known by their first letters and their shape,
    prefixes.py   and how they are found
    blocks.py     private keys
    headers.py    Authorization, bearers, cookies
    urls.py       passwords in URLs, webhooks, signatures, connection strings
    commands.py   options of single programs that take a password
    files.py      lines of credential files
    people.py     mail addresses, phone numbers, cards, home folders, user names
    wrapped.py    secrets inside base64 or percent-encoding
    known.py      values that the environment names as secret

A rule finds cheap literals first and looks closer only around them, never further than a bounded
stretch, so that a text costs time in proportion to its length whatever it says.
"""

from __future__ import annotations

from rekindle.redaction.scanner import Rule, where_they_stand

from . import (
    assignments,
    cli_options,
    credential_files,
    http_headers,
    personal_data,
    private_keys,
    urls,
)
from .api_keys import tokens

_STEMS = (
    *private_keys.STEMS,
    *http_headers.STEMS,
    *urls.STEMS,
    *assignments.STEMS,
    *cli_options.STEMS,
    *credential_files.STEMS,
    *personal_data.STEMS,
)

RULES: tuple[Rule, ...] = (
    tokens,
    where_they_stand(_STEMS),
    personal_data.mails,
    cli_options.options,
    credential_files.hashes,
    personal_data.numbers,
)
