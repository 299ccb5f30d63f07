"""What the tool `warm_session` does when it is called."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, cast

from rekindle.agent.tools.tool import Question, ToolContext, ToolResult
from rekindle.analytics import compare as comparing
from rekindle.analytics import compression
from rekindle.analytics import profile as profiles
from rekindle.errors import InvalidInput, RekindleError, ToolError
from rekindle.knowledge.file_format import OWNER
from rekindle.knowledge.render import Manner, render
from rekindle.knowledge.selection import SHARED, Ask
from rekindle.redaction.redactor import Redactor
from rekindle.store import Filter, Store
from rekindle.types import JSON, Template, plain

from . import build, miner
from .library import Templates, checked_tags, index, is_called, one_of
from .miner import Wanted
from .template_slot import Guard
from .warm_start import accepted, chosen_of

# What each action cannot do without.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "build": ("name",),
    "extract": ("name", "session_id"),
    "load": ("name",),
    "delete": ("name",),
    "profile": ("session_id",),
    "compress-check": ("session_id",),
    "compare": ("session_id", "compare_with"),
}

Given = Mapping[str, JSON]
Reply = dict[str, Any]


class WarmDesk:
    """Carries the actions out."""

    def __init__(
        self, templates: Templates, redactor: Callable[[], Redactor], shared: bool
    ) -> None:
        self._templates = templates
        self._redactor = redactor
        self._shared = shared

    async def answer(self, context: ToolContext, given: Given) -> ToolResult:
        action: str = given["action"]
        try:
            for name in _NEEDS.get(action, ()):
                if not str(given.get(name, "")).strip():
                    raise InvalidInput(f"{name}: {action} needs it")
            if action == "delete":
                # Looked for first: nobody is asked about what is not there, or not theirs.
                given = {**given, "name": await asyncio.to_thread(self._doomed, context, given)}
                await self._allow(context, given["name"])
            reply = await asyncio.to_thread(self._act, action, context, given)
        except ToolError:
            raise
        except (RekindleError, OSError) as error:
            said = json.dumps({"success": False, "error": str(error)}, ensure_ascii=False)
            return ToolResult(said, {"is_error": True})
        return ToolResult(json.dumps({"success": True, **reply}, ensure_ascii=False, default=str))

    def _act(self, action: str, context: ToolContext, given: Given) -> Reply:
        store, owner = cast("Store", context.store), self._owner(context)
        acts: dict[str, Callable[[Store, str | None, Given], Reply]] = {
            "build": self._build,
            "extract": self._extract,
            "list": self._list,
            "load": self._load,
            "delete": self._delete,
            "profile": _profile,
            "compress-check": _compress_check,
            "compare": _compare,
        }
        return acts[action](store, owner, given)

    def _owner(self, context: ToolContext) -> str | None:
        return context.owner if self._shared else None

    def _build(self, store: Store, owner: str | None, given: Given) -> Reply:
        wanted = Wanted(
            source=given.get("source_filter"),
            owner=owner,
            min_messages=given["min_messages"],
            max_sessions=given["max_sessions"],
        )
        redactor = self._redactor()
        template, scan, kept = build.build(
            store,
            self._templates,
            redactor,
            given["name"],
            wanted,
            now=time.time(),
            description=given.get("description"),
            tags=self._tags(given),
            automatic=True,
            guard=self._guard(store, owner),
        )
        metrics = {
            "sessions_scanned": scan.scanned,
            "sessions_qualified": scan.qualified,
            "avg_proficiency_gain": scan.avg_proficiency_gain,
        }
        about = {"metrics": metrics, "removed": build.removed_by(redactor), "kept": kept}
        return {**_head(template), **about, "note": _waiting(template)}

    def _extract(self, store: Store, owner: str | None, given: Given) -> Reply:
        redactor = self._redactor()
        template = build.extract(
            store,
            self._templates,
            redactor,
            given["session_id"],
            given["name"],
            now=time.time(),
            description=given.get("description"),
            tags=self._tags(given),
            owner=owner,
            state="quarantined",
            guard=self._guard(store, owner),
        )
        removed = build.removed_by(redactor)
        return {**_head(template), "removed": removed, "note": _waiting(template)}

    def _tags(self, given: Given) -> tuple[str, ...]:
        tags = checked_tags(given.get("tags", ()))
        if self._shared and SHARED in tags:
            raise InvalidInput(
                f"tags: only a person gives a template to everybody, with `rekindle warm edit"
                f" TEMPLATE --tag {SHARED}`"
            )
        return tags

    def _guard(self, store: Store, owner: str | None) -> Guard:
        """An agent replaces only what waits to be looked at, and is of those it works for."""
        sight = _Sight(store, owner)

        def why_not(old: Template) -> str:
            if not sight.owns(old):
                return "there is one already: take another name"
            if old.state == "active":
                return "there is one already, and it is in use: take another name"
            return ""

        return why_not

    def _list(self, store: Store, owner: str | None, given: Given) -> Reply:
        wanted = set(given.get("tags", ()))
        found = [one for one in self._visible(_Sight(store, owner)) if wanted <= set(one.tags)]
        return {"templates": [_head(one) for one in found], "count": len(found)}

    def _visible(self, sight: _Sight) -> list[Template]:
        templates = (entry.template for entry in self._templates.all())
        return [one for one in templates if one is not None and sight.sees(one)]

    def _find(self, store: Store, owner: str | None, name: str) -> Template:
        """The template with this id or name; what the asker must not see is not there."""
        if owner is None:
            return self._templates.find(name)
        visible = self._visible(_Sight(store, owner))
        by_id = [one for one in visible if one.id == name]
        return one_of(by_id or [one for one in visible if is_called(one, name)], name)

    def _load(self, store: Store, owner: str | None, given: Given) -> Reply:
        template = accepted(self._find(store, owner, given["name"]))
        tools = {step.tool: _anything for one in template.patterns for step in one.steps}
        choice = chosen_of(template, Ask(given.get("description", ""), tools), 8)
        found = render(template, choice.patterns, tools, Manner("digest", patterns=8))
        text = "\n\n".join(message.text for message in found.messages)
        return {**_head(template), "advice": text, "tokens": found.tokens}

    def _doomed(self, context: ToolContext, given: Given) -> str:
        """What is to be deleted: a file that cannot be read too, where there is nobody else's."""
        name, owner = str(given["name"]), self._owner(context)
        if owner is None:
            return name
        store = cast("Store", context.store)
        template = self._find(store, owner, name)
        if not _Sight(store, owner).owns(template):
            raise InvalidInput(
                f"template {template.id!r} is there for everybody: a person deletes it, with"
                f" `rekindle warm delete {template.id}`"
            )
        return template.id

    def _delete(self, store: Store, owner: str | None, given: Given) -> Reply:
        id = self._templates.delete(given["name"])
        index(store, self._templates)
        return {"deleted": id}

    async def _allow(self, context: ToolContext, name: str) -> None:
        if context.approval == "never":
            return
        about = ("a template that is deleted is gone",)
        question = Question("warm_session", f"delete the template {name}", str(context.cwd), about)
        may = context.approval != "refuse" and context.approve and await context.approve(question)
        if not may:
            raise ToolError(
                f"the template was not deleted: a person does that, with `rekindle warm delete {name}`",
                refused=True,
            )


class _Sight:
    """Which templates somebody sees, and which of them are their own; without an owner all are."""

    def __init__(self, store: Store, owner: str | None) -> None:
        self._store = store
        self._owner = owner

    def sees(self, template: Template) -> bool:
        return SHARED in template.tags or self.owns(template)

    def owns(self, template: Template) -> bool:
        if self._owner is None or template.scan.get(OWNER) == self._owner:
            return True
        return bool(template.sources) and self._sessions.issuperset(template.sources)

    @cached_property
    def _sessions(self) -> set[str]:
        return build.sessions_of(self._store, Filter(owner=self._owner))


def _profile(store: Store, owner: str | None, given: Given) -> Reply:
    judged = miner.judged_session(store, store.resolve(given["session_id"], owner=owner).id)
    found: Reply = plain(profiles.profile(judged))
    found["session"] = {"id": judged.session.id, "title": judged.session.title}
    return {"profile": found}


def _compress_check(store: Store, owner: str | None, given: Given) -> Reply:
    session = store.resolve(given["session_id"], owner=owner)
    chain = compression.chain_of(store.lineage(session, owner=owner), session)
    found = compression.check([miner.judged_session(store, one.id) for one in chain])
    return {
        "session_id": session.id,
        "has_compression": found.has_compression,
        "proficiency_preserved": found.proficiency_preserved,
        "verdict": found.verdict,
        "check": plain(found),
    }


def _compare(store: Store, owner: str | None, given: Given) -> Reply:
    """The first session is the warm one, the other the cold one it is held against."""
    warm, cold = (
        miner.judged_session(store, store.resolve(given[name], owner=owner).id)
        for name in ("session_id", "compare_with")
    )
    found = comparing.compare([cold], [warm], ("cold", "warm"))
    warm_rate, cold_rate = found.b.rate.rate, found.a.rate.rate
    improvement = None if warm_rate is None or cold_rate is None else cold_rate - warm_rate
    return {
        "warm_error_rate": warm_rate,
        "cold_error_rate": cold_rate,
        "improvement": None if improvement is None else round(improvement, 6),
        "warm_better": None if improvement is None else improvement > 0,
        "is_clear": found.better is not None,
        "test": found.test,
    }


def _head(template: Template) -> Reply:
    return {
        "id": template.id,
        "name": template.name,
        "description": template.description,
        "task_type": template.task_type,
        "tags": list(template.tags),
        "state": template.state,
        "revision": template.revision,
        "pattern_count": len(template.patterns),
    }


def _waiting(template: Template) -> str:
    if template.state == "retired":
        return "a person took it out of use, and so it stays"
    return f"it is used once a person accepts it: rekindle warm accept {template.id}"


def _anything(_: Given) -> bool:
    return True
