"""What the tool `warm_session` does when it is called."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from . import building, learn
from .agent.tools.tool import Question, ToolContext, ToolResult
from .errors import InvalidInput, RekindleError, ToolError
from .learn import Wanted
from .starts import accepted, chosen_of
from .store import Store
from .templates import Templates, index
from .types import JSON, Template, plain
from .warm import compare as comparing
from .warm import compression
from .warm import profile as profiles
from .warm.choose import Ask
from .warm.redact import Redactor
from .warm.render import Manner, render

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
                await self._allow(context, given["name"])
            reply = await asyncio.to_thread(self._act, action, context, given)
        except ToolError:
            raise
        except (RekindleError, OSError) as error:
            said = json.dumps({"success": False, "error": str(error)}, ensure_ascii=False)
            return ToolResult(said, {"is_error": True})
        return ToolResult(json.dumps({"success": True, **reply}, ensure_ascii=False, default=str))

    def _act(self, action: str, context: ToolContext, given: Given) -> Reply:
        store = cast("Store", context.store)
        owner = context.owner if self._shared else None
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

    def _build(self, store: Store, owner: str | None, given: Given) -> Reply:
        wanted = Wanted(
            source=given.get("source_filter"),
            owner=owner,
            min_messages=given["min_messages"],
            max_sessions=given["max_sessions"],
        )
        template, scan = building.build(
            store,
            self._templates,
            self._redactor(),
            given["name"],
            wanted,
            now=time.time(),
            description=given.get("description"),
            tags=given.get("tags", ()),
            automatic=True,
        )
        metrics = {
            "sessions_scanned": scan.scanned,
            "sessions_qualified": scan.qualified,
            "avg_proficiency_gain": scan.avg_proficiency_gain,
        }
        return {**_head(template), "metrics": metrics, "note": _waiting(template)}

    def _extract(self, store: Store, owner: str | None, given: Given) -> Reply:
        template = building.extract(
            store,
            self._templates,
            self._redactor(),
            given["session_id"],
            given["name"],
            now=time.time(),
            description=given.get("description"),
            tags=given.get("tags", ()),
            owner=owner,
        )
        waiting = self._templates.change(
            template.id, lambda one: one._replace(state="quarantined"), revision=template.revision
        )
        index(store, self._templates)
        return {**_head(waiting), "note": _waiting(waiting)}

    def _list(self, store: Store, owner: str | None, given: Given) -> Reply:
        wanted = set(given.get("tags", ()))
        found = [
            entry.template
            for entry in self._templates.all()
            if entry.template and wanted <= set(entry.template.tags)
        ]
        return {"templates": [_head(one) for one in found], "count": len(found)}

    def _load(self, store: Store, owner: str | None, given: Given) -> Reply:
        template = accepted(self._templates.find(given["name"]))
        tools = {step.tool: _anything for one in template.patterns for step in one.steps}
        choice = chosen_of(template, Ask(given.get("description", ""), tools), 8)
        found = render(template, choice.patterns, tools, Manner("digest", patterns=8))
        text = "\n\n".join(message.text for message in found.messages)
        return {**_head(template), "advice": text, "tokens": found.tokens}

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


def _profile(store: Store, owner: str | None, given: Given) -> Reply:
    judged = learn.judged_session(store, store.resolve(given["session_id"], owner=owner).id)
    found: Reply = plain(profiles.profile(judged))
    found["session"] = {"id": judged.session.id, "title": judged.session.title}
    return {"profile": found}


def _compress_check(store: Store, owner: str | None, given: Given) -> Reply:
    session = store.resolve(given["session_id"], owner=owner)
    chain = compression.chain_of(store.lineage(session, owner=owner), session)
    found = compression.check([learn.judged_session(store, one.id) for one in chain])
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
        learn.judged_session(store, store.resolve(given[name], owner=owner).id)
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
    return f"it is used once a person accepts it: rekindle warm accept {template.id}"


def _anything(_: Given) -> bool:
    return True
