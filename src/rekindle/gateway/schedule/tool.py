"""The `schedule` tool: an agent makes and manages the jobs of the person it talks to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from rekindle.agent.tools.tool import Tool, ToolContext, ToolResult, build_failure, build_schema
from rekindle.errors import InvalidInput, NotFound
from rekindle.routing.source import LOCAL, from_json
from rekindle.types import JSON, Source

from . import planning

ACTIONS = ("add", "list", "pause", "resume", "run", "remove", "history")
_TEXT: dict[str, JSON] = {"type": "string", "minLength": 1}


def create_schedule_tool(zone: str) -> Tool:
    """Create the tool; `zone` is the time zone of jobs that name none."""

    def handle(context: ToolContext, arguments: Mapping[str, JSON]) -> ToolResult:
        try:
            return ToolResult(json.dumps(_run_action(context, arguments, zone), ensure_ascii=False))
        except (InvalidInput, NotFound) as error:
            return build_failure(str(error))

    return Tool(
        name="schedule",
        toolset="schedule",
        description=(
            "Run a prompt at a later time or again and again. add: `when` is a time (“30m”,"
            " “tomorrow 9:00”), an interval (“every 2h”), or a rule (“weekdays at 8:30”,"
            " “0 9 * * MON-FRI”), `prompt` is what a fresh session is asked to do then: it knows"
            " nothing of this conversation. deliver: origin (this chat), local, <platform>,"
            " <platform>:<chat id>. list, pause, resume, run (now), remove, history: `job` is its id."
        ),
        parameters=build_schema(
            "action",
            action={"type": "string", "enum": list(ACTIONS)},
            when={**_TEXT, "maxLength": 200},
            prompt={**_TEXT, "maxLength": planning.MAX_TEXT_CHARS},
            name={**_TEXT, "maxLength": planning.MAX_NAME_CHARS},
            deliver={**_TEXT, "maxLength": 300},
            zone={**_TEXT, "maxLength": 60, "description": "IANA time zone"},
            same_session={"type": "boolean", "description": "continue one session in all runs"},
            silent={
                "type": "boolean",
                "description": "deliver only if there is something to report",
            },
            job=_TEXT,
        ),
        handler=handle,
        missing=_find_missing,
        emoji="⏰",
        abilities=frozenset(("reach_people",)),
    )


def _find_missing(context: ToolContext) -> str | None:
    return None if context.store and context.owner else "there is no store"


def _run_action(context: ToolContext, arguments: Mapping[str, JSON], zone: str) -> JSON:
    store, owner, action = context.store, context.owner, arguments["action"]
    assert store is not None
    assert owner is not None
    if action == "list":
        return [planning.job_to_dict(job) for job in store.jobs.list(owner=owner)]
    if action == "add":
        return planning.job_to_dict(_add_job(context, arguments, zone))
    job = store.jobs.find(_get_text(arguments, "job"), owner=owner)
    if action == "history":
        return [planning.run_to_dict(run) for run in store.jobs.list_runs(job)]
    if action == "remove":
        store.jobs.remove(job)
        return {"removed": job.id}
    change = {"pause": planning.pause_job, "resume": planning.resume_job}.get(str(action))
    return planning.job_to_dict((change or planning.run_job_now)(store, job))


def _add_job(
    context: ToolContext, arguments: Mapping[str, JSON], zone: str
) -> planning.ScheduledJob:
    assert context.store is not None
    assert context.owner is not None
    request = planning.JobRequest(
        when=_get_text(arguments, "when"),
        text=_get_text(arguments, "prompt"),
        name=cast(str, arguments.get("name", "")),
        deliver=cast(str, arguments.get("deliver", "origin")),
        zone=cast(str, arguments.get("zone", "")),
        session="same" if arguments.get("same_session") else "new",
        is_silent=arguments.get("silent") is True,
    )
    maker = Source(LOCAL, "terminal")
    if context.address:
        maker = from_json(json.loads(context.address)[1])
    return planning.add_job(context.store, request, owner=context.owner, maker=maker, zone=zone)


def _get_text(arguments: Mapping[str, JSON], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{name}: missing")
    return value
