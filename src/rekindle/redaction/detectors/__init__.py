"""Detectors of secrets and personal data, one subject per file.

    scanner.py           the input and result of a detector, and the search for literals
    entropy.py           tells random text, placeholders and digests from words
    secret_names.py      names that announce a secret: `db_password`, `apiKey`, not `token_count`
    assignments.py       a secret's name and its value: code, settings, JSON, YAML, XML, prose
    api_keys.py          keys and tokens with a known prefix and shape
    private_keys.py      private keys
    http_headers.py      Authorization, bearer tokens, cookies
    urls.py              passwords in URLs, webhooks, signatures, connection strings
    cli_options.py       command-line options that take a password
    credential_files.py  lines of credential files
    personal_data.py     email addresses, phone numbers, cards, home folders, user names
    encoded.py           secrets inside base64 or percent-encoding
    environment.py       values of secret environment variables

A detector first finds cheap literals and inspects only a bounded stretch around them, so the cost is
linear in the length of the text, whatever it contains.
"""

from __future__ import annotations

from rekindle.redaction.personal import contacts, id_numbers, places
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

_LITERAL_DETECTORS = (
    *private_keys.LITERAL_DETECTORS,
    *http_headers.LITERAL_DETECTORS,
    *urls.LITERAL_DETECTORS,
    *assignments.LITERAL_DETECTORS,
    *cli_options.LITERAL_DETECTORS,
    *credential_files.LITERAL_DETECTORS,
    *code_calls.LITERAL_DETECTORS,
    *tables.LITERAL_DETECTORS,
    *prose.LITERAL_DETECTORS,
    *contacts.LITERAL_DETECTORS,
    *places.LITERAL_DETECTORS,
    *id_numbers.LITERAL_DETECTORS,
)

DETECTORS: tuple[Detector, ...] = (
    detect_tokens,
    make_literal_detector(_LITERAL_DETECTORS),
    contacts.detect_emails,
    contacts.detect_spelled_emails,
    cli_options.detect_options,
    credential_files.detect_hashes,
    contacts.detect_numbers,
    id_numbers.detect_id_numbers,
    places.detect_prompts,
    places.detect_streets,
    bare_secrets.detect_passwords,
    bare_secrets.detect_bare_tokens,
    bare_secrets.detect_phrases,
    prose.detect_foreign_passwords,
)
