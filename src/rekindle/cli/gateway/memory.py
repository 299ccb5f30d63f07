"""`rekindle memory`: what the agent remembers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    escape_control_chars,
    print_json,
    print_line,
    write_json_array,
    write_table,
)
from rekindle.cli.store_access import (
    load_settings,
    open_for_reading,
    open_for_writing,
)

if TYPE_CHECKING:
    from rekindle.store.conversations.memory import Fact

group = create_group("See and change what the agent remembers.")
FactOwnerOption = Annotated[
    str | None,
    typer.Option(
        "--owner", metavar="NAME", help="Owner of the facts. Default: you in the terminal chat."
    ),
]
NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="Number of the fact.")]


@group.command("list")
def list_facts(owner: FactOwnerOption = None, json: JsonOption = False) -> None:
    """List facts, and proposals that wait for your approval.

    \b
    Examples:
      rekindle memory list
      rekindle memory list --owner agent:main:matrix:dm:@ada:example.org --json
    """
    from rekindle.gateway.memory.facts import fact_to_dict

    name = owner or _get_own_name()
    with open_for_reading(refresh=False) as store:
        facts = [*store.memory.list(name), *store.memory.list(name, proposed=True)]
        others = [one for one in store.memory.list_owners() if one[0] != name]
    if json:
        write_json_array(fact_to_dict(fact) for fact in facts)
        return
    if facts:
        columns = (Column("number", right=True), Column("fact", flexible=True), Column("state"))
        write_table(columns, [(f"{one.number}", one.text, one.state) for one in facts])
    else:
        print_line("Nothing is remembered. Add a fact with `rekindle memory add`.")
    if others and owner is None:
        print_line("Others with facts, for --owner:")
        for other, count in others:
            print_line(escape_control_chars(f"  {other} ({count})"))


@group.command("add")
def add_fact(
    text: Annotated[str, typer.Argument(help="The fact: one line of at most 300 characters.")],
    owner: FactOwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Add a fact. Only new sessions get it.

    \b
    Examples:
      rekindle memory add 'I prefer tabs and short answers'
    """
    from rekindle.gateway.memory.facts import clean_fact
    from rekindle.store.conversations.memory import PERSON

    with open_for_writing(may_create=True) as store:
        fact = store.memory.add(owner or _get_own_name(), clean_fact(text), actor=PERSON)
    _print_fact("Remembered", fact, json)


@group.command("forget")
def forget_fact(
    number: NumberArgument, owner: FactOwnerOption = None, json: JsonOption = False
) -> None:
    """Remove a fact, or reject a proposal. `rekindle memory undo` restores it.

    \b
    Examples:
      rekindle memory forget 3
    """
    from rekindle.store.conversations.memory import PERSON

    with open_for_writing() as store:
        fact = store.memory.remove(owner or _get_own_name(), number, actor=PERSON)
    _print_fact("Forgot" if fact.state == "active" else "Rejected", fact, json)


@group.command("accept")
def accept_fact(
    number: NumberArgument, owner: FactOwnerOption = None, json: JsonOption = False
) -> None:
    """Accept a fact that the agent proposed.

    \b
    Examples:
      rekindle memory accept 4
    """
    with open_for_writing() as store:
        fact = store.memory.accept(owner or _get_own_name(), number)
    _print_fact("Remembered", fact, json)


@group.command("undo")
def undo_change(owner: FactOwnerOption = None, json: JsonOption = False) -> None:
    """Undo the last change, whoever made it. Repeat to undo earlier ones.

    \b
    Examples:
      rekindle memory undo
    """
    from rekindle.gateway.memory.facts import change_to_dict
    from rekindle.store.conversations.memory import PERSON

    with open_for_writing() as store:
        change = store.memory.undo(owner or _get_own_name(), actor=PERSON)
    if json:
        print_json(change_to_dict(change))
        return
    restored = "" if change.before_text is None else f" It is again: {change.before_text}"
    line = f"Undone: {change.action} of fact {change.number}.{restored}"
    print_line(escape_control_chars(line))


@group.command("history")
def show_history(
    owner: FactOwnerOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of changes.")
    ] = 50,
    json: JsonOption = False,
) -> None:
    """Show changes to facts, newest first.

    \b
    Examples:
      rekindle memory history
      rekindle memory history --limit 5 --json
    """
    from rekindle.gateway.memory.facts import change_to_dict

    with open_for_reading(refresh=False) as store:
        changes = store.memory.list_changes(owner or _get_own_name(), limit)
    if json:
        write_json_array(change_to_dict(change) for change in changes)
        return
    if not changes:
        print_line("Nothing has changed yet.")
    for change in changes:
        moment = datetime.fromtimestamp(change.time)
        texts = " → ".join(text for text in (change.before_text, change.after_text) if text)
        undone = " (undone)" if change.undone else ""
        line = f"{moment:%Y-%m-%d %H:%M}  {change.actor}  {change.action} {change.number}: {texts}"
        print_line(escape_control_chars(line + undone))


def _get_own_name() -> str:
    from rekindle.gateway.context import get_terminal_owner

    return get_terminal_owner(load_settings())


def _print_fact(done: str, fact: Fact, json: bool) -> None:
    from rekindle.gateway.memory.facts import fact_to_dict

    if json:
        print_json(fact_to_dict(fact))
    else:
        print_line(escape_control_chars(f"{done} {fact.number}: {fact.text}"))
