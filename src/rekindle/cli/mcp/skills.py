"""`rekindle skill export` and `rekindle plugin export`: notes in the formats of other agents."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    DryRunOption,
    JsonOption,
    YesOption,
    print_json,
    print_line,
    print_notice,
)
from rekindle.cli.store_access import load_settings, open_for_notes
from rekindle.errors import InvalidInput, NotFound

from .folder_export import write_export

if TYPE_CHECKING:
    from rekindle.knowledge.skill import Skill

SKILL_FILE = "SKILL.md"
PLUGIN_NAME = "rekindle"
HOOK_SECONDS = 10

skill_group = create_group("Export skills for other agents.")
plugin_group = create_group("Export a plugin for Claude Code.")
_ProjectOption = Annotated[
    str | None,
    typer.Option(metavar="PROJECT", help="Project, e.g. owner/name.", show_default="this folder's"),
]


@skill_group.command("export")
def export_skill(
    project: _ProjectOption = None,
    template: Annotated[
        str | None,
        typer.Option(metavar="TEMPLATE", help="Export this template instead.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Folder of skills to write to, e.g. .claude/skills. Default: stdout.",
            show_default=False,
        ),
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Export what a project's sessions learned, or a template, as a skill (SKILL.md).

    With --output, the skill is written to a folder with its name. If that folder exists, the change
    is shown and you are asked first.

    \b
    Examples:
      rekindle skill export
      rekindle skill export --project owner/name -o .claude/skills
      rekindle skill export --template our-repository -o ~/.agents/skills --yes
    """
    if project is not None and template is not None:
        raise InvalidInput("--template: expected either --project or --template")
    skill = _load_project_skill(project) if template is None else _load_template_skill(template)
    if output is not None:
        folder = output.expanduser() / skill.name
        write_export(folder, {SKILL_FILE: skill.text}, yes=yes, dry_run=dry_run)
    elif json:
        print_json({**skill._asdict(), "text": skill.text})
    else:
        print_line(skill.text.rstrip("\n"))


@plugin_group.command("export")
def export_plugin(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the plugin.")],
    project: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT",
            help="Add the skill of this project, e.g. owner/name.",
            show_default=False,
        ),
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Export a plugin for Claude Code: hooks, MCP server and skill in one folder.

    Use it with `claude --plugin-dir DIR`. It works only on this machine, with this home of Rekindle.

    \b
    Examples:
      rekindle plugin export ~/rekindle-plugin
      rekindle plugin export ~/rekindle-plugin --project owner/name --yes
    """
    from rekindle.hooks.command import write_launcher
    from rekindle.knowledge.skill import build_tools_skill

    skills = [build_tools_skill()]
    if project is not None:
        skills.append(_load_project_skill(project))
    home = load_settings().home.absolute()
    files = {name: _encode_file(value) for name, value in _build_plugin_files(home).items()}
    files |= {f"skills/{one.name}/{SKILL_FILE}": one.text for one in skills}
    write_export(folder.expanduser(), files, yes=yes, dry_run=dry_run)
    if not dry_run:
        write_launcher(home)
        print_notice(f"Use it with: claude --plugin-dir {folder}")


def _load_project_skill(wanted: str | None) -> Skill:
    from rekindle.cli.warm.options import create_redactor
    from rekindle.cli.warm.playbook import resolve_project
    from rekindle.knowledge.skill import build_project_skill
    from rekindle.learning.notes.playbooks import load_told_notes
    from rekindle.projects import shorten_project

    with open_for_notes(may_create=False) as store:
        project = resolve_project(store, wanted)
        notes = load_told_notes(store, project)
    if not notes:
        raise NotFound(f"Nothing is known in {project} yet that several sessions share.")
    skill = build_project_skill(shorten_project(project), notes)
    return skill._replace(body=create_redactor().redact_text(skill.body))


def _load_template_skill(name: str) -> Skill:
    from rekindle.cli.warm.options import create_redactor, open_library
    from rekindle.knowledge.redact_template import redact_template
    from rekindle.knowledge.skill import build_template_skill

    template = redact_template(open_library().find(name), create_redactor())
    if template.state != "active":
        raise InvalidInput(
            f"template {template.id} is {template.state}: accept it first with"
            f" `rekindle warm accept {template.id}`"
        )
    return build_template_skill(template)


def _build_plugin_files(home: Path) -> dict[str, Any]:
    """Return the files of the plugin besides its skills, by their names."""
    from rekindle import __version__
    from rekindle.coding_agents.agent import list_program_words
    from rekindle.hooks.command import CALL_EVENT, SHELL_TOOLS, build_hook_command, list_events

    agent, before_call = "claude-code", load_settings().warm.before_call
    hooks: dict[str, Any] = {}
    for event, name in list_events(agent, before_call=before_call).items():
        matcher = {"matcher": SHELL_TOOLS[agent]} if event == CALL_EVENT else {}
        hook = _build_hook(build_hook_command(agent, event, home))
        hooks[name] = [{**matcher, "hooks": [hook]}]
    program, *arguments = list_program_words()
    server = {"command": program, "args": [*arguments, "mcp"], "alwaysLoad": True}
    about = {
        "name": PLUGIN_NAME,
        "version": __version__,
        "description": "Past sessions of your projects: notes at the start, fixes, and search.",
        "author": {"name": "The Rekindle authors"},
        "license": "MIT",
    }
    return {
        ".claude-plugin/plugin.json": about,
        "hooks/hooks.json": {"hooks": hooks},
        ".mcp.json": {"mcpServers": {PLUGIN_NAME: server}},
    }


def _build_hook(command: str) -> dict[str, Any]:
    return {"type": "command", "command": command, "timeout": HOOK_SECONDS}


def _encode_file(value: Any) -> str:
    return json_text.dumps(value, indent=2, ensure_ascii=False) + "\n"
