"""The OpenAPI document, and the client that follows it."""

from __future__ import annotations

import inspect
from pathlib import Path

from rekindle.api.client import ApiClient
from rekindle.api.document import build_document, render_document
from rekindle.api.operations import OPERATIONS
from rekindle.api.serving.handlers import ApiHandlers

FILE = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_document_that_is_checked_in_is_current() -> None:
    # python -c 'from rekindle.api.document import *; print(render_document(), end="")'
    assert FILE.read_text() == render_document()


def test_server_and_client_have_a_method_for_each_operation_and_no_others() -> None:
    names = {one.id for one in OPERATIONS}
    for kind, extra in ((ApiHandlers, set[str]()), (ApiClient, {"iter_sessions", "close"})):
        public = {name for name, _ in inspect.getmembers(kind, inspect.isfunction)}
        assert {name for name in public if not name.startswith("_")} - extra == names


def test_every_reference_of_the_document_leads_to_a_schema() -> None:
    document = build_document()
    text = render_document()
    schemas = document["components"]["schemas"]
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used <= {*schemas}
    assert {*schemas} <= used


def test_an_operation_that_needs_a_key_says_so() -> None:
    for path in build_document()["paths"].values():
        for operation in path.values():
            is_open = operation.get("security") == []
            assert is_open == ("401" not in operation["responses"])
