"""The handler of the `warm_session` tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from rekindle.agent.tools.tool import ApprovalRequest, ToolContext, ToolResult
from rekindle.analytics import compare as comparing
from rekindle.analytics import compression
from rekindle.analytics import profile as profiles
from rekindle.errors import InvalidInput, RekindleError, ToolError
from rekindle.knowledge.render import MAX_NOTES, RenderOptions, render_prelude
from rekindle.knowledge.template_notes import rank_notes
from rekindle.redaction.redactor import Redactor
from rekindle.store import Store
from rekindle.types import JSON, Template, to_json_value

from . import build
from .library import (
    SHARED_TAG,
    TemplateLibrary,
    has_name,
    require_single,
    update_index,
    validate_tags,
)
from .selection import is_owned_by
from .session_filter import BuildFilter
from .template_slot import OverwriteCheck
from .verdicts.judged_sessions import load_judged_session
from .warm_start import require_active

# Required arguments by action.
_REQUIRED_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "build": ("name",),
    "extract": ("name", "session_id"),
    "load": ("name",),
    "delete": ("name",),
    "profile": ("session_id",),
    "compress-check": ("session_id",),
    "compare": ("session_id", "compare_with"),
}

ToolArguments = Mapping[str, JSON]
ToolReply = dict[str, Any]


class WarmSessionHandler:
    """Runs the actions of the tool."""

    def __init__(
        self, templates: TemplateLibrary, create_redactor: Callable[[], Redactor], shared: bool
    ) -> None:
        self._templates = templates
        self._create_redactor = create_redactor
        self._shared = shared

    async def handle(self, context: ToolContext, arguments: ToolArguments) -> ToolResult:
        """Run the requested action and return its result as JSON."""
        action: str = arguments["action"]
        try:
            for name in _REQUIRED_ARGUMENTS.get(action, ()):
                if not str(arguments.get(name, "")).strip():
                    raise InvalidInput(f"{name}: required for {action}")
            if action == "delete":
                # Resolve first: never ask for approval of something missing or hidden.
                arguments = {
                    **arguments,
                    "name": await asyncio.to_thread(self._resolve_deletion, context, arguments),
                }
                await self._require_approval(context, arguments["name"])
            reply = await asyncio.to_thread(self._run_action, action, context, arguments)
        except ToolError:
            raise
        except (RekindleError, OSError) as error:
            text = json.dumps({"success": False, "error": str(error)}, ensure_ascii=False)
            return ToolResult(text, {"is_error": True})
        return ToolResult(json.dumps({"success": True, **reply}, ensure_ascii=False, default=str))

    def _run_action(self, action: str, context: ToolContext, arguments: ToolArguments) -> ToolReply:
        store, owner = cast("Store", context.store), self._get_owner(context)
        handlers: dict[str, Callable[[Store, str | None, ToolArguments], ToolReply]] = {
            "build": self._build_template,
            "extract": self._extract_template,
            "list": self._list_templates,
            "load": self._load_template,
            "delete": self._delete_template,
            "profile": _profile_session,
            "compress-check": _check_compression,
            "compare": _compare_sessions,
        }
        return handlers[action](store, owner, arguments)

    def _get_owner(self, context: ToolContext) -> str | None:
        return context.owner if self._shared else None

    def _build_template(
        self, store: Store, owner: str | None, arguments: ToolArguments
    ) -> ToolReply:
        wanted = BuildFilter(
            source=arguments.get("source_filter"),
            owner=owner,
            min_messages=arguments["min_messages"],
            max_sessions=arguments["max_sessions"],
        )
        redactor = self._create_redactor()
        template, scan, kept = build.build_template(
            store,
            self._templates,
            redactor,
            arguments["name"],
            wanted,
            description=arguments.get("description"),
            tags=self._validate_tags(arguments),
            automatic=True,
            overwrite_check=self._make_overwrite_check(store, owner),
        )
        metrics = {
            "sessions_scanned": scan.scanned,
            "sessions_qualified": scan.qualified,
            "avg_proficiency_gain": scan.avg_proficiency_gain,
        }
        details = {
            "metrics": metrics,
            "removed": build.count_redactions(redactor, template),
            "kept": kept,
        }
        return {**_summarize_template(template), **details, "note": _explain_state(template)}

    def _extract_template(
        self, store: Store, owner: str | None, arguments: ToolArguments
    ) -> ToolReply:
        redactor = self._create_redactor()
        template = build.extract_template(
            store,
            self._templates,
            redactor,
            arguments["session_id"],
            arguments["name"],
            description=arguments.get("description"),
            tags=self._validate_tags(arguments),
            owner=owner,
            state="quarantined",
            overwrite_check=self._make_overwrite_check(store, owner),
        )
        removed = build.count_redactions(redactor, template)
        return {
            **_summarize_template(template),
            "removed": removed,
            "note": _explain_state(template),
        }

    def _validate_tags(self, arguments: ToolArguments) -> tuple[str, ...]:
        tags = validate_tags(arguments.get("tags", ()))
        if self._shared and SHARED_TAG in tags:
            raise InvalidInput(
                f"tags: only a person can share a template, with `rekindle warm edit"
                f" TEMPLATE --tag {SHARED_TAG}`"
            )
        return tags

    def _make_overwrite_check(self, store: Store, owner: str | None) -> OverwriteCheck:
        """Return a check that lets an agent replace only its own templates that are not in use."""

        def explain_refusal(old: Template) -> str:
            if not is_owned_by(store, old, owner):
                return "already exists; choose another name"
            if old.state == "active":
                return "already exists and is in use; choose another name"
            return ""

        return explain_refusal

    def _list_templates(
        self, store: Store, owner: str | None, arguments: ToolArguments
    ) -> ToolReply:
        tags = set(arguments.get("tags", ()))
        found = [one for one in self._list_visible(store, owner) if tags <= set(one.tags)]
        return {"templates": [_summarize_template(one) for one in found], "count": len(found)}

    def _list_visible(self, store: Store, owner: str | None) -> list[Template]:
        templates = (entry.template for entry in self._templates.list_entries())
        return [
            one
            for one in templates
            if one is not None and (SHARED_TAG in one.tags or is_owned_by(store, one, owner))
        ]

    def _find_template(self, store: Store, owner: str | None, name: str) -> Template:
        """Return the template with this id or name; hidden ones do not exist for the caller."""
        if owner is None:
            return self._templates.find(name)
        visible = self._list_visible(store, owner)
        by_id = [one for one in visible if one.id == name]
        return require_single(by_id or [one for one in visible if has_name(one, name)], name)

    def _load_template(
        self, store: Store, owner: str | None, arguments: ToolArguments
    ) -> ToolReply:
        template = require_active(self._find_template(store, owner, arguments["name"]))
        notes = rank_notes(template.notes, arguments.get("description", ""))
        options = RenderOptions("digest", notes=MAX_NOTES)
        found = render_prelude(template, notes, {"terminal": _accept_anything}, options)
        text = "\n\n".join(message.text for message in found.messages)
        return {**_summarize_template(template), "advice": text, "tokens": found.tokens}

    def _resolve_deletion(self, context: ToolContext, arguments: ToolArguments) -> str:
        """Resolve the template to delete; without an owner, an unreadable file can be deleted too."""
        name, owner = str(arguments["name"]), self._get_owner(context)
        if owner is None:
            return name
        store = cast("Store", context.store)
        template = self._find_template(store, owner, name)
        if not is_owned_by(store, template, owner):
            raise InvalidInput(
                f"template {template.id!r} is shared: only a person can delete it, with"
                f" `rekindle warm delete {template.id}`"
            )
        return template.id

    def _delete_template(
        self, store: Store, owner: str | None, arguments: ToolArguments
    ) -> ToolReply:
        id = self._templates.delete(arguments["name"])
        update_index(store, self._templates)
        return {"deleted": id}

    async def _require_approval(self, context: ToolContext, name: str) -> None:
        if context.approval == "never":
            return
        reasons = ("deleting a template cannot be undone",)
        question = ApprovalRequest(
            "warm_session", f"delete the template {name}", str(context.cwd), reasons
        )
        can_ask = context.approval != "refuse" and context.approve is not None
        answer = await context.approve(question) if can_ask and context.approve else "no"
        if answer in (False, "no"):
            raise ToolError(
                f"not deleted: approval required; a person can run `rekindle warm delete {name}`",
                refused=True,
            )


def _profile_session(store: Store, owner: str | None, arguments: ToolArguments) -> ToolReply:
    judged = load_judged_session(store, store.resolve(arguments["session_id"], owner=owner).id)
    found: ToolReply = to_json_value(profiles.build_profile(judged))
    found["session"] = {"id": judged.session.id, "title": judged.session.title}
    return {"profile": found}


def _check_compression(store: Store, owner: str | None, arguments: ToolArguments) -> ToolReply:
    session = store.resolve(arguments["session_id"], owner=owner)
    chain = compression.find_conversation_chain(store.lineage(session, owner=owner), session)
    found = compression.check_compressions([load_judged_session(store, one.id) for one in chain])
    return {
        "session_id": session.id,
        "has_compression": found.has_compression,
        "proficiency_preserved": found.proficiency_preserved,
        "verdict": found.verdict,
        "check": to_json_value(found),
    }


def _compare_sessions(store: Store, owner: str | None, arguments: ToolArguments) -> ToolReply:
    """Compare the first session, as the warm one, with the other, as the cold one."""
    warm, cold = (
        load_judged_session(store, store.resolve(arguments[name], owner=owner).id)
        for name in ("session_id", "compare_with")
    )
    found = comparing.compare_sessions([cold], [warm], ("cold", "warm"))
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


def _summarize_template(template: Template) -> ToolReply:
    return {
        "id": template.id,
        "name": template.name,
        "description": template.description,
        "task_type": template.task_type,
        "tags": list(template.tags),
        "state": template.state,
        "revision": template.revision,
        "pattern_count": len(template.notes),
    }


def _explain_state(template: Template) -> str:
    if template.state == "retired":
        return "retired by a person; it stays out of use"
    return f"in quarantine until a person runs `rekindle warm accept {template.id}`"


def _accept_anything(_: ToolArguments) -> bool:
    return True
