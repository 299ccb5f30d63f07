"""The events of OpenHands as messages; `openhands.py` finds them in their containers.

Before version 1 an event is an action (`action`, `args`) or an observation (`observation`,
`content`, `extras`), joined by `cause`; `tool_call_metadata` has the whole answer of the model, so
the first action of an answer tells all its calls. The oldest have their fields at the top, no ids
and no source: there the order joins them. An observation of an `error` without a cause answers a
call that could not even be read, and stands alone. Since version 1 an event has a `kind`, and the
actions of one answer follow each other with the same `llm_response_id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import cast

from rekindle.json_fields import (
    Record,
    content,
    count,
    number,
    present,
    record,
    records,
    seconds,
    text,
    text_part,
)
from rekindle.transcripts.events import Event, Learned, Opened
from rekindle.transcripts.jsonio.jsonl import decode
from rekindle.transcripts.readers.session_builder import Turn
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace

SOURCES = ("user", "agent", "environment")

# Bookkeeping, not messages.
_SILENT = {
    *("system", "recall", "null", "change_agent_state", "agent_state_changed", "pause", "resume"),
    *("condensation_request", "recall_failure", "server_ready", "loop_detection", "start", "stop"),
}
# What stands beside the arguments of a call in an action.
_ABOUT_CALL = {
    *("thought", "action", "confirmation_state", "is_confirmed", "security_risk", "action_risk"),
    *("hidden", "blocking", "keep_prompt", "kernel_init_code", "impl_source", "source", "id"),
    *("timestamp", "message", "timeout", "args", "tool_call_metadata", "llm_metrics", "cause"),
}
_NOT_RUN = "is NOT executed"
# The newest kinds of events that are messages.
_KINDS = {
    *("MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent"),
    *("UserRejectObservation", "Condensation"),
}


def is_event(value: Record) -> bool:
    """Whether this is an event, of whatever version."""
    if isinstance(value.get("kind"), str):
        return "timestamp" in value and value.get("source") in (*SOURCES, "hook")
    told = [value[name] for name in ("action", "observation") if name in value]
    if len(told) != 1 or not isinstance(told[0], str):
        return False
    sourced = value.get("source") in SOURCES and "timestamp" in value
    return sourced or any(name in value for name in ("action_risk", "is_confirmed", "command_id"))


class Conversation:
    """One conversation as far as it is read."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.opened = False
        self.marks: dict[str, JSON] = {}
        self.answered: set[str] = set()
        self.calls: dict[str, ToolCall] = {}
        self.typed: set[str] = set()
        # The call that waits for a result where only the order joins them.
        self.waiting: ToolCall | None = None
        self.spoke: str | None = None
        self.turn: Turn | None = None
        # Told when the next message comes: only the end shows which is the last.
        self.held: Message | None = None

    def learn(self, about: Record) -> None:
        """Take what an evaluation says beside the events."""
        config = record(record(about.get("metadata")).get("llm_config"))
        self.session = replace(
            self.session,
            model=text(config, "model") or self.session.model,
            title=text(about, "instance_id")
            or text(record(about.get("issue")), "title")
            or self.session.title,
            end_reason=(text(about, "error") or "")[:200] or self.session.end_reason,
        )
        self._count(record(about.get("metrics")))

    def take(self, event: Record, place: str) -> Iterator[Event]:
        id = event.get("id")
        place = f"event:{id}" if isinstance(id, (int, str)) and id != "" else place
        if isinstance(event.get("kind"), str):
            said = self._newest(event, place)
        elif isinstance(event.get("action"), str):
            said = self._act(event, cast(str, event["action"]), place)
        else:
            said = self._observe(event, text(event, "observation") or "null", place)
        for message in said:
            yield from self._say(message)

    def finish(self, resolved: bool | None = None) -> Iterator[Event]:
        for message in self._close():
            yield from self._say(message)
        if self.held is not None:
            facts = {**(self.held.meta or {}), "resolved": resolved}
            yield from self._tell(replace(self.held, meta=present(facts)))
            self.held = None
        if self.opened:
            yield Learned(self.session)

    def _say(self, message: Message) -> Iterator[Event]:
        held, self.held = self.held, message
        if held is not None:
            yield from self._tell(held)

    def _tell(self, message: Message) -> Iterator[Event]:
        if not self.opened:
            self.opened = True
            started = self.session.started or message.timestamp or 0.0
            self.session = replace(self.session, started=started)
            yield Opened(self.session)
        yield message

    def _count(self, metrics: Record) -> None:
        """Take the sum so far of tokens and cost."""
        usage = record(metrics.get("accumulated_token_usage"))
        if usage:
            self.session = replace(self.session, tokens=_tokens(usage))
        cost = number(metrics.get("accumulated_cost"))
        if cost and 0 < cost < 1e9:
            self.session = replace(self.session, cost=Decimal(str(cost)))

    def _message(self, role: str, said: Content, event: Record, place: str) -> Message:
        marks, self.marks = self.marks, {}
        return Message(
            role=role,
            content=said,
            platform_message_id=place,
            meta=present(marks),
            timestamp=seconds(event.get("timestamp")),
        )

    # -- before version 1 ---------------------------------------------------------------------

    def _act(self, event: Record, kind: str, place: str) -> Iterator[Message]:
        args = record(event.get("args")) or event
        self._count(record(event.get("llm_metrics")))
        if kind == "condensation":
            self.marks["compacted"] = present({"summary": text(args, "summary")}) or {}
        elif kind == "message":
            yield self._message(self._speaker(event), _spoken(args), event, place)
        elif kind in _SILENT:
            return
        elif event.get("source") == "user":
            self.typed.add(str(event.get("id")))
            typed = self._message("user", text(args, "command", "code", "path"), event, place)
            yield replace(typed, meta={**(typed.meta or {}), "typed": kind})
        else:
            self.spoke = kind
            yield from self._call(event, args, kind, place)

    def _speaker(self, event: Record) -> str:
        source = event.get("source")
        if source not in SOURCES:
            # Without a source, the user speaks first, and whenever the agent spoke last.
            source = "user" if self.spoke in (None, "message") else "agent"
        self.spoke = "message" if source == "agent" else "user"
        return "assistant" if source == "agent" else "user"

    def _call(self, event: Record, args: Record, kind: str, place: str) -> Iterator[Message]:
        about = record(event.get("tool_call_metadata"))
        response = record(about.get("model_response"))
        choices = records(response.get("choices"))
        said = record(choices[0].get("message")) if choices else {}
        own = text(about, "tool_call_id") or f"call:{place}"
        calls = [_native(call) for call in records(said.get("tool_calls"))]
        if own not in [call.id for call in calls]:
            given = {name: value for name, value in args.items() if name not in _ABOUT_CALL}
            calls = [ToolCall(own, text(about, "function_name") or kind, given)]
        self.waiting = next(call for call in calls if call.id == own)
        self.calls[str(event.get("id"))] = self.calls[own] = self.waiting
        answer = text(response, "id")
        if answer is not None:
            if answer in self.answered:
                return
            self.answered.add(answer)
        if not self.session.model:
            self.session = replace(self.session, model=text(response, "model"))
        thought = text(said, "content") or text(args, "thought", "final_thought")
        yield replace(
            self._message("assistant", thought, event, answer or place),
            tool_calls=tuple(calls),
            reasoning=text(said, "reasoning_content"),
            finish_reason=text(choices[0], "finish_reason") if choices else None,
        )

    def _observe(self, event: Record, kind: str, place: str) -> Iterator[Message]:
        if kind in _SILENT or kind == "message":
            return
        said = event.get("content")
        seen = said if isinstance(said, str) else content(records(said))
        if kind == "condense":
            self.marks["compacted"] = {"summary": seen if isinstance(seen, str) else None}
            return
        if str(event.get("cause", "none")) in self.typed:
            yield self._message("user", seen, event, place)
            return
        extras = record(event.get("extras")) or event
        folder = text(record(extras.get("metadata")), "working_dir")
        self.session = replace(self.session, cwd=self.session.cwd or folder)
        call = self._answered(event)
        message = self._message("tool", seen, event, place)
        yield replace(
            message,
            tool_call_id=call.id if call else None,
            name=call.name if call else None,
            meta=present({**(message.meta or {}), **_facts(kind, extras, seen)}),
        )

    def _answered(self, event: Record) -> ToolCall | None:
        id = text(record(event.get("tool_call_metadata")), "tool_call_id")
        call = self.calls.pop(id, None) if id else None
        cause = self.calls.pop(str(event["cause"]), None) if "cause" in event else None
        if call or cause:
            return call or cause
        if id is not None:
            # The call lies in another file.
            about = record(event.get("tool_call_metadata"))
            return ToolCall(id, text(about, "function_name") or "")
        if "cause" in event or "id" in event:
            return None
        call, self.waiting = self.waiting, None
        return call

    # -- since version 1 ----------------------------------------------------------------------

    def _newest(self, event: Record, place: str) -> Iterator[Message]:
        kind = text(event, "kind") or ""
        if kind not in _KINDS:
            return
        if kind == "ActionEvent":
            yield from self._action(event, place)
            return
        yield from self._close()
        if kind == "MessageEvent":
            said = record(event.get("llm_message"))
            role = "user" if event.get("source") == "user" else "assistant"
            message = self._message(role, _parts(said.get("content")), event, place)
            yield replace(message, reasoning=text(said, "reasoning_content"))
        elif kind == "Condensation":
            self.marks["compacted"] = present({"summary": text(event, "summary")}) or {}
        else:
            seen, facts = _told(event, kind)
            message = self._message("tool", seen, event, place)
            yield replace(
                message,
                tool_call_id=text(event, "tool_call_id"),
                name=text(event, "tool_name"),
                meta=present({**(message.meta or {}), **facts}),
            )

    def _action(self, event: Record, place: str) -> Iterator[Message]:
        answer = text(event, "llm_response_id") or place
        if self.turn is None or self.turn.id != answer:
            yield from self._close()
            self.turn = Turn(answer, seconds(event.get("timestamp")))
            self.turn.facts.update(self.marks)
            self.marks = {}
        for part in records(event.get("thought")):
            if value := text(part, "text"):
                self.turn.add_text(value)
        if thought := text(event, "reasoning_content"):
            self.turn.add_thought(thought)
        call = record(event.get("tool_call"))
        own = _native(call)
        id = text(event, "tool_call_id") or own.id or f"call:{place}"
        given = own.arguments or record(event.get("action"))
        self.turn.add_call(ToolCall(id, text(event, "tool_name") or own.name, given))

    def _close(self) -> Iterator[Message]:
        turn, self.turn = self.turn, None
        if turn is not None:
            yield turn.message()


def _spoken(args: Record) -> Content:
    parts: list[dict[str, JSON]] = []
    if value := text(args, "content"):
        parts.append(text_part(value))
    urls = args.get("image_urls") or args.get("images_urls")
    for url in cast("list[object]", urls) if isinstance(urls, list) else []:
        if isinstance(url, str):
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return content(parts)


def _parts(said: object) -> Content:
    if isinstance(said, str):
        return said
    parts: list[dict[str, JSON]] = []
    for part in records(said):
        urls = part.get("image_urls")
        if isinstance(urls, list):
            parts += [
                {"type": "image_url", "image_url": {"url": url}}
                for url in cast("list[object]", urls)
                if isinstance(url, str)
            ]
        elif (value := text(part, "text")) is not None:
            parts.append(text_part(value))
    return content(parts)


def _native(call: Record) -> ToolCall:
    function = record(call.get("function")) or call
    given = function.get("arguments")
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    return ToolCall(text(call, "id") or "", text(function, "name") or "", arguments)


def _facts(kind: str, extras: Record, seen: Content) -> dict[str, JSON]:
    """What an observation says beside its text."""
    facts: dict[str, JSON] = {}
    about = record(extras.get("metadata"))
    if kind == "run":
        facts = _end(about.get("exit_code", extras.get("exit_code")), text(about, "suffix") or "")
    elif kind == "error":
        facts["is_error"] = True
    elif kind == "user_rejected":
        facts["refused"] = True
    elif kind in ("browse", "browse_interactive") and isinstance(extras.get("error"), bool):
        facts["is_error"] = extras["error"]
    elif kind == "mcp" and isinstance(seen, str) and '"isError"' in seen:
        try:
            failed = record(decode(seen.encode("utf-8", "replace"))).get("isError")
        except ValueError:
            failed = None
        facts["is_error"] = failed if isinstance(failed, bool) else None
    return facts


def _end(code: object, notice: str) -> dict[str, JSON]:
    """How a command ended: -1 is no exit code, but a command that goes on or was never begun."""
    if not isinstance(code, int) or isinstance(code, bool) or abs(code) >= 2**53:
        return {}
    if code != -1:
        return {"exit_code": code}
    if _NOT_RUN in notice:
        return {"refused": True}
    return {"running": True} if notice else {}


def _told(event: Record, kind: str) -> tuple[Content, dict[str, JSON]]:
    """The text of a result since version 1, and what is said beside it."""
    if kind == "AgentErrorEvent":
        return text(event, "error"), {"is_error": True}
    if kind == "UserRejectObservation":
        reason = text(event, "rejection_reason") or ""
        facts: dict[str, JSON] = {"refused": True, "denial": text(event, "rejection_source")}
        return f"Action rejected: {reason}", facts
    seen = record(event.get("observation"))
    about = record(seen.get("metadata"))
    code = seen.get("exit_code")
    facts = _end(about.get("exit_code") if code is None else code, text(about, "suffix") or "")
    failed = seen.get("is_error")
    # A command that failed is no error of its tool, and then the exit code speaks.
    if isinstance(failed, bool) and (failed or not facts):
        facts["is_error"] = failed
    said = _parts(seen.get("content"))
    return said if said is not None else text(seen, "output", "text", "message"), facts


def _tokens(usage: Record) -> Tokens:
    cached = count(usage.get("cache_read_tokens"))
    written = count(usage.get("cache_write_tokens"))
    return Tokens(
        # Here the prompt includes what came from the cache or went into it.
        input=max(0, count(usage.get("prompt_tokens")) - cached - written),
        output=count(usage.get("completion_tokens")),
        cache_read=cached,
        cache_write=written,
        reasoning=count(usage.get("reasoning_tokens")),
    )
