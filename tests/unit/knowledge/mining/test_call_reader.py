"""Nothing of a call gets into what is kept of it but through redaction."""

from __future__ import annotations

import json

import msgspec

from rekindle.judging.call_pairing import digest_call, get_call_work
from rekindle.knowledge.mining.call_reader import CallReader, SessionCalls
from rekindle.knowledge.mining.call_signature import CachedRedactor
from rekindle.redaction.redactor import Redactor
from rekindle.types import JudgedCall, ToolCall
from tests.unit.redaction.canaries import Canary, planted

CANARIES = tuple(planted())


def calls_with(canary: Canary) -> list[ToolCall]:
    """The canary wherever a call can carry it."""
    text = canary.text
    given = [
        ("terminal", {"command": f"deskctl run --note {text} --all"}),
        ("terminal", {"command": text}),
        ("terminal", {"command": "make docs", "workdir": text}),
        ("book_room", {"room": "R1", "note": text, "deep": {"list": [text, {"more": text}]}}),
        ("patch", {"path": "a.py", "old_string": text, "new_string": text}),
        ("read_file", {"path": text}),
        ("execute_code", {"code": f"print({text!r})"}),
        ("odd", text),
    ]
    return [
        ToolCall(f"c{n}", tool, part if isinstance(part, str) else json.dumps(part))
        for n, (tool, part) in enumerate(given)
    ]


def kept_of(calls: list[ToolCall], redactor: Redactor, *, at_once: bool) -> str:
    """What mining keeps of calls that all went well: as it is written, and as it reads."""
    judged: list[tuple[JudgedCall, ToolCall]] = []
    for place, call in enumerate(calls):
        verdict = JudgedCall(
            "s", place, 0, call.id, call.name, get_call_work(call), digest_call(call), "ok", False,
            None, None,
            "test", 1.0,
        )  # fmt: skip
        judged.append((verdict, call))
    reader = CallReader(
        lambda value: redactor.redact_value(value, "arguments"), lambda _, call: call
    )
    parts = [judged] if at_once else [[one] for one in judged]
    made = [
        deed
        for part in parts
        for deeds in reader.read_sessions([SessionCalls(part, [], None)])
        for deed in deeds
    ]
    deeds = [deed._replace(id="") for deed in made]
    written = msgspec.json.encode(deeds).decode()
    return f"{written}\n{json.dumps(json.loads(written), ensure_ascii=False)}"


def leaked(canary: Canary, kept: str) -> list[str]:
    return [part for part in canary.values if part in kept]


def test_no_planted_secret_gets_into_the_form_of_a_call() -> None:
    wrong: list[str] = []
    for canary in CANARIES:
        kept = kept_of(calls_with(canary), Redactor(), at_once=False)
        wrong += [f"{canary.kind}: {part}" for part in leaked(canary, kept)]
    assert wrong == []


def test_looking_at_many_texts_at_once_lets_none_through() -> None:
    redactor = Redactor()
    calls = [call for canary in CANARIES for call in calls_with(canary)]
    harmless = [
        ToolCall("h", "terminal", json.dumps({"command": f"make part{n}"})) for n in range(400)
    ]
    kept = kept_of([*harmless, *calls], redactor, at_once=True)
    wrong = [f"{canary.kind}: {part}" for canary in CANARIES for part in leaked(canary, kept)]
    assert wrong == []


def test_what_redaction_left_alone_is_not_looked_at_again() -> None:
    seen: list[object] = []

    def redact(value: object) -> object:
        seen.append(value)
        return value.replace("hunter2", "<secret>") if isinstance(value, str) else value

    known = CachedRedactor(redact)
    known.check_batch(["a", "b", "c"])
    assert known("a") == "a"
    assert known({"command": "b", "limit": 5}) == {"command": "b", "limit": 5}
    assert seen == ["a\nb\nc"]
    known.check_batch(["d", "use hunter2"])
    assert known("use hunter2") == "use <secret>"
    assert known("d") == "d"
