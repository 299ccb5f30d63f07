"""ATIF, the Agent Trajectory Interchange Format of Harbor: read, versions 1.0 to 1.8.

A trajectory is a session; sub-agents may be embedded (`subagent_trajectories`) or lie in files of
their own. A step of the agent is an answer, and the results of its calls stand in its observation.
Results that name no call are matched by order. Steps of the system are no messages, except where
our own export says which role they had; the work of a sub-agent that such a step observed is a
result. A trajectory that a summary split goes on in `….cont-N.json`, whose first steps are copies.
What the export put into `extra` makes its messages come back as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from rekindle.json_fields import (
    Record,
    count,
    number,
    present,
    record,
    records,
    seconds,
    text,
    text_part,
)
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.stream import Closed, Place, steps
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace

from .ids import MASKED, made_id

SOURCE = "atif"

_ROLES = {"user": "user", "agent": "assistant"}
# A word in capitals is what a test harness puts in the place of an id.
_PLACEHOLDER = re.compile(r"[A-Z_<>]+")
_SUMMARIZER = re.compile(r"(.+)-summarization-\d+-\w+", re.DOTALL)
_CONTINUED = re.compile(r"(.+)\.cont-(\d{1,6})(\.\w+)?", re.DOTALL)
_DEAREST = 1e9


def sniff(head: Head) -> bool:
    return _is_trajectory(head.fields)


def _is_trajectory(about: Record) -> bool:
    return (text(about, "schema_version") or "").startswith("ATIF")


def read(path: Path) -> Iterator[Event]:
    open_ones: dict[Place, _Trajectory] = {}
    document = -1
    for step in steps(path, _opens):
        if isinstance(step, Damage):
            yield step
            continue
        if step.document != document:
            document = step.document
            open_ones = {}
        if isinstance(step, Closed):
            if (one := open_ones.pop(step.place, None)) is not None:
                yield from one.finish()
            continue
        place = _owner(step.place)
        one = open_ones.get(place)
        if one is None:
            above = open_ones.get(place[:-2]) if place else None
            one = open_ones[place] = _Trajectory(path, document, place, above)
        if step.place[len(place) :][:1] == ("steps",):
            yield from one.take(step.value, step.place[-1], step.line)
        else:
            one.learn(str(step.place[-1]), step.value)
    for one in open_ones.values():
        yield from one.finish()


def _opens(place: Place) -> bool:
    below = place[len(_owner(place)) :]
    return below in ((), ("steps",), ("subagent_trajectories",))


def _owner(place: Place) -> Place:
    """The place of the trajectory that this one is part of."""
    end = 0
    while place[end : end + 1] == ("subagent_trajectories",) and len(place) >= end + 2:
        end += 2
    return place[:end]


class _Trajectory:
    """One trajectory as far as it is read."""

    def __init__(self, path: Path, document: int, place: Place, above: _Trajectory | None) -> None:
        self.path = path
        self.place = ".".join(map(str, (document, *place)) if document or place else ())
        self.above = above
        self.about: Record = {}
        self.session: Session | None = None
        self.spoken: Session | None = None
        self.spent = Tokens()
        self.cost = Decimal(0)

    def learn(self, key: str, value: JSON) -> None:
        self.about[key] = value

    def take(self, value: object, index: str | int, line: int) -> Iterator[Event]:
        """An element of `steps`."""
        step = record(value)
        if not text(step, "source"):
            yield Damage(str(self.path), line, f"steps[{index}]: expected a step with a source")
            return
        self._spend(record(step.get("metrics")))
        session = self._opened()
        model = session.model or text(step, "model_name")
        self.session = replace(
            session,
            model=model,
            started=session.started or seconds(step.get("timestamp")) or 0.0,
        )
        place = f"step:{index + 1}" if isinstance(index, int) else f"step:{index}"
        for message in _messages(step, place, model):
            if self.spoken is None:
                self.spoken = self.session
                yield Opened(self.session)
            yield message

    def _opened(self) -> Session:
        if self.session is None:
            id = _id(self.about) or made_id("atif", self.path, self.place)
            parent = self._parent(id)
            if self.above is not None and id == parent:
                id = f"{self.place}@{parent}"
            agent = record(self.about.get("agent"))
            self.session = Session(
                id=id,
                source=SOURCE,
                model=text(agent, "model_name"),
                parent=parent if parent != id else None,
            )
        return self.session

    def _parent(self, id: str) -> str | None:
        if self.above is not None:
            return self.above._opened().id
        if match := _SUMMARIZER.fullmatch(id):
            return match[1]
        return _continued(self.path)

    def _spend(self, metrics: Record) -> None:
        self.spent = self.spent.plus(_tokens(metrics, ""))
        self.cost += _money(metrics.get("cost_usd"))

    def finish(self) -> Iterator[Event]:
        if self.spoken is None or self.session is None:
            return
        final = record(self.about.get("final_metrics"))
        extra = record(self.about.get("extra"))
        tokens = _tokens(final, "total_")
        parent = text(extra, "parent_session_id")
        yield Learned(
            replace(
                self.session,
                id=self.spoken.id,
                title=text(extra, "title"),
                cwd=text(extra, "cwd"),
                git_branch=text(extra, "git_branch"),
                parent=self.session.parent or (parent if parent != self.spoken.id else None),
                started=seconds(extra.get("started")) or self.session.started,
                end_reason=text(extra, "end_reason"),
                tokens=tokens if any(tokens) else self.spent,
                cost=_money(final.get("total_cost_usd")) or self.cost,
            )
        )


def _id(about: Record) -> str | None:
    """The id of a trajectory; a run and its sub-agents may share that of the session."""
    session, own = (text(about, name) or "" for name in ("session_id", "trajectory_id"))
    names = [name for name in (own, session) if name not in MASKED]
    names = [name for name in names if not _PLACEHOLDER.fullmatch(name)]
    return "@".join(dict.fromkeys(names)) or None


def _continued(path: Path) -> str | None:
    """The id of the trajectory that this one continues, from the file beside it."""
    match = _CONTINUED.fullmatch(path.name)
    if match is None:
        return None
    number = int(match[2])
    before = f"{match[1]}.cont-{number - 1}" if number > 1 else match[1]
    try:
        first = path.with_name(f"{before}{match[3] or ''}")
        about = Head.of(first).fields
    except OSError:
        return None
    if not _is_trajectory(about):
        return None
    return _id(about) or made_id("atif", first, "")


def _messages(step: Record, place: str, model: str | None) -> Iterator[Message]:
    """The message of a step, and the results that it observed."""
    extra = record(step.get("extra"))
    role = _ROLES.get(text(step, "source") or "") or text(extra, "role")
    results = records(record(step.get("observation")).get("results"))
    if role == "tool":
        # A result whose call is elsewhere: the export gives it a step of its own.
        for result in results[:1]:
            about = {**record(result.get("extra")), **extra}
            yield _result({**result, "extra": about}, place, None, step, {})
        return
    calls = [
        _call(call, f"{place}:{part}")
        for part, call in enumerate(
            records(step.get("tool_calls")) or records(extra.get("tool_calls"))
        )
    ]
    if role is not None and len(role) <= 64:
        yield _said(step, extra, role, tuple(call for _, call in calls), place, model)
    facts: dict[str, JSON] = {"copied": True} if step.get("is_copied_context") is True else {}
    failed = extra.get("tool_result_is_error")
    if isinstance(failed, bool) and len(results) == 1:
        facts["is_error"] = failed
    waiting = dict(calls)
    nameless = extra.get("nameless")
    nameless = cast("list[object]", nameless) if isinstance(nameless, list) else []
    for part, result in enumerate(results, 1):
        named = text(result, "source_call_id") or text(record(result.get("extra")), "call")
        # One that names no call answers the first that waits.
        call = waiting.pop(next(iter(waiting), "") if named is None else named, None)
        if call is not None and call.id in nameless:
            call = call._replace(name="")
        yield _result(result, f"{place}:result:{part}", call, step, facts)


def _said(
    step: Record,
    extra: Record,
    role: str,
    calls: tuple[ToolCall, ...],
    place: str,
    model: str | None,
) -> Message:
    own = text(step, "model_name")
    facts: dict[str, JSON] = {
        "copied": True if step.get("is_copied_context") is True else None,
        "model": own if own != model else None,
    }
    message = _content(step.get("message"), extra)
    return Message(
        role=role,
        content=message if message or extra.get("empty") is True else None,
        tool_calls=calls,
        tool_call_id=text(extra, "tool_call_id"),
        name=text(extra, "name"),
        reasoning=text(step, "reasoning_content") or text(extra, "reasoning"),
        finish_reason=text(extra, "finish_reason"),
        platform_message_id=text(extra, "message_id") or place,
        meta=present({**facts, **record(extra.get("meta"))}),
        timestamp=seconds(step.get("timestamp")),
    )


def _result(
    result: Record, place: str, call: ToolCall | None, step: Record, facts: Mapping[str, JSON]
) -> Message:
    extra = record(result.get("extra"))
    agents = [id for id in map(_id, records(result.get("subagent_trajectory_ref"))) if id]
    if one := _id(record(result.get("subagent_trajectory_ref"))):
        agents = [one]
    agent = {"agent": agents[0] if len(agents) == 1 else cast(JSON, agents) or None}
    named = text(extra, "name")
    return Message(
        role="tool",
        content=_content(result.get("content"), extra),
        tool_call_id=call.id
        if call
        else text({**extra, **result}, "tool_call_id", "source_call_id"),
        name=named or (call.name or None if call else None),
        reasoning=text(extra, "reasoning"),
        finish_reason=text(extra, "finish_reason"),
        platform_message_id=text(extra, "message_id") or place,
        meta=present({**facts, **agent, **record(extra.get("meta"))}),
        timestamp=seconds(extra.get("timestamp")) or seconds(step.get("timestamp")),
    )


def _call(call: Record, place: str) -> tuple[str, ToolCall]:
    """A call, and the name that its result has for it."""
    known = text(call, "tool_call_id") or place
    return known, call_of(call, place)


def call_of(call: Record, place: str = "") -> ToolCall:
    """The call that the format says so."""
    extra = record(call.get("extra"))
    arguments = extra.get("text", call.get("arguments"))
    if not isinstance(arguments, (str, dict)):
        arguments = ""
    id, name = extra.get("id"), extra.get("name")
    return ToolCall(
        id if isinstance(id, str) else text(call, "tool_call_id") or place,
        name if isinstance(name, str) else text(call, "function_name") or "",
        cast("str | Record", arguments),
    )


def _content(value: Any, extra: Record) -> Content:
    kept = extra.get("content")
    return [*records(cast(object, kept))] if isinstance(kept, list) else content_of(value)


def content_of(value: Any) -> Content:
    """The content that the format says so."""
    if isinstance(value, str) or value is None:
        return value
    return [_part(part) for part in records(value)]


def _part(part: Record) -> dict[str, JSON]:
    path = text(record(part.get("source")), "path")
    if part.get("type") == "image" and path:
        return {"type": "image_url", "image_url": {"url": path}}
    return text_part(part["text"]) if isinstance(part.get("text"), str) else part


def _tokens(metrics: Record, prefix: str) -> Tokens:
    extra = record(metrics.get("extra"))
    given = count(metrics.get(f"{prefix}prompt_tokens"))
    read = count(metrics.get(f"{prefix}cached_tokens"))
    written = count(extra.get("cache_write_tokens"))
    return Tokens(
        input=max(0, given - read - written),
        output=count(metrics.get(f"{prefix}completion_tokens")),
        cache_read=read,
        cache_write=written,
        reasoning=count(extra.get("reasoning_tokens")),
    )


def _money(value: object) -> Decimal:
    cost = number(value) or 0.0
    return Decimal(str(cost)) if 0 < cost < _DEAREST else Decimal(0)
