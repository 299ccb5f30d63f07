"""Sessions that run commands, for the pages of projects."""

from __future__ import annotations

from rekindle import Message, Store, ToolCall
from rekindle.learning.notes.learner import learn_from_sessions

FOLDER = "/gone/work/shop"
PROJECT = f"folder:{FOLDER}"
HOSTILE = '<script>alert("x")</script>'


def tell(
    store: Store,
    name: str,
    *commands: tuple[str, str, bool],
    folder: str = FOLDER,
    asked: str = "please work on it",
    started: float | None = None,
) -> str:
    """Store a session that runs commands, each with its output and whether it works."""
    session = store.begin(id=name, cwd=folder, source="claude-code", started=started)
    messages = [Message("user", asked, timestamp=started)]
    for number, (command, output, works) in enumerate(commands):
        later = None if started is None else started + 60 * (number + 1)
        call = ToolCall(f"{name}-{number}", "Bash", {"command": command})
        messages.append(Message("assistant", tool_calls=(call,), timestamp=later))
        text = output if works else f"Exit code 1\n{output}"
        messages.append(
            Message(
                "tool",
                text,
                tool_call_id=call.id,
                name="Bash",
                meta={"is_error": not works},
                timestamp=later,
            )
        )
    store.append(session, *messages)
    return name


def tell_history(store: Store, count: int = 6, folder: str = FOLDER, prefix: str = "s") -> None:
    """Store sessions that all run `make check`, half of which fail first, and learn from them."""
    for number in range(count):
        steps = [("make check", "error: no rule", False)] if number % 2 else []
        tell(store, f"{prefix}{number}", *steps, ("make check", "ok", True), folder=folder)
    learn_from_sessions(store)
