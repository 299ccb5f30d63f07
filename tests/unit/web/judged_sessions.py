"""Sessions with calls that worked and failed, for pages that count them."""

from __future__ import annotations

from rekindle import Message, Store, ToolCall

MONDAY = 1_780_300_800.0  # 2026-06-01, 08:00 UTC
WEEK = 7 * 86_400.0


def add_session(
    store: Store,
    name: str,
    outcomes: str,
    *,
    tool: str = "Bash",
    command: str = "go test ./...",
    problem: str = "exit status 1",
    source: str = "claude-code",
    model: str = "opus",
    cwd: str = "/work/app",
    started: float = MONDAY,
    parent: str | None = None,
) -> str:
    """Add a session that calls a tool once for each letter: `x` failed, anything else worked."""
    session = store.begin(
        id=name, source=source, model=model, cwd=cwd, started=started, parent=parent
    )
    messages = [Message("user", f"Please do {name}", timestamp=started)]
    for number, outcome in enumerate(outcomes):
        id, failed = f"toolu_01{name}Xy{number}Zw9q", outcome == "x"
        call = ToolCall(id, tool, {"command": command})
        time = started + 60 * number
        messages.append(Message("assistant", "", tool_calls=(call,), timestamp=time))
        text = f"Exit code 1\n{problem}" if failed else "ok"
        messages.append(
            Message("tool", text, tool_call_id=id, meta={"is_error": failed}, timestamp=time + 1)
        )
    store.append(session, *messages)
    return name


def add_history(store: Store) -> None:
    """Add three weeks of sessions of two agents: 14 of 84 calls failed."""
    for week in range(3):
        for number in range(7):
            name = f"w{week}n{number}"
            started = MONDAY + week * WEEK + number * 3600
            if number < 5:
                add_session(store, name, "..x." if number else "....", started=started)
            else:
                add_session(
                    store, name, "...x" if week == 0 else "....", tool="exec_command",
                    source="codex", model="gpt", cwd="/work/lib", started=started,
                )  # fmt: skip
