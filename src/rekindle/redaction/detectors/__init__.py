"""Detectors of secrets, one subject per file.

    assignments.py       a secret's name and its value: code, settings, JSON, YAML, XML
    prose.py             the same in sentences, also in other languages
    tables.py            the cells below a secret's name: CSV, Markdown
    api_keys.py          keys and tokens with a known prefix and shape
    bare_secrets.py      random tokens and generated passwords that nothing announces
    private_keys.py      private keys
    http_headers.py      Authorization, bearer tokens, cookies
    urls.py              passwords in URLs, webhooks, signatures, connection strings
    cli_options.py       command-line options and commands that take a password
    code_calls.py        functions that take a password or key
    credential_files.py  lines of credential files
    encoded.py           secrets inside base64, hexadecimal, percent-encoding and other escapes

Beside this folder are `personal/` for personal data, `vocabulary/` for names, shapes and randomness, and
`scanner.py` for the search. A detector first finds cheap literals; then a bounded stretch around each is
inspected, so the cost is linear in the length of the text, whatever it contains.
"""

from __future__ import annotations

from rekindle.redaction.personal import accounts, contacts, id_numbers, places
from rekindle.redaction.scanner import Detector, make_literal_detector

from . import (
    assignments,
    bare_secrets,
    cli_options,
    code_calls,
    credential_files,
    http_headers,
    private_keys,
    prose,
    tables,
    urls,
)
from .api_keys import detect_tokens

SECRET_DETECTORS: tuple[Detector, ...] = (
    detect_tokens,
    make_literal_detector(
        (
            *private_keys.LITERAL_DETECTORS,
            *http_headers.LITERAL_DETECTORS,
            *urls.LITERAL_DETECTORS,
            *assignments.LITERAL_DETECTORS,
            *cli_options.LITERAL_DETECTORS,
            *credential_files.LITERAL_DETECTORS,
            *code_calls.LITERAL_DETECTORS,
            *tables.LITERAL_DETECTORS,
            *prose.LITERAL_DETECTORS,
        )
    ),
    cli_options.detect_options,
    credential_files.detect_hashes,
    bare_secrets.detect_passwords,
    bare_secrets.detect_bare_tokens,
    bare_secrets.detect_phrases,
    prose.detect_foreign_passwords,
)
DETECTORS: tuple[Detector, ...] = (
    *SECRET_DETECTORS,
    make_literal_detector(
        (
            *contacts.LITERAL_DETECTORS,
            *places.LITERAL_DETECTORS,
            *id_numbers.LITERAL_DETECTORS,
            *accounts.LITERAL_DETECTORS,
        )
    ),
    contacts.detect_emails,
    contacts.detect_spelled_emails,
    contacts.detect_numbers,
    id_numbers.detect_id_numbers,
    accounts.detect_owners,
    places.detect_prompts,
    places.detect_streets,
)
