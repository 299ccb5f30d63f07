from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from rekindle.transcripts import (
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.types import Tokens
from tests.unit.transcripts.conftest import messages

FIRST = """
# aider chat started at 2026-03-01 10:00:00

> Aider v0.86.1  
> Main model: gpt-x with diff edit format  
> Weak model: gpt-y  
> Git repo: .git with 12 files  

#### please add a test  
####   
#### for rounding  

Here is a test.

#### What it does

> a quotation in the answer

```
>>>>>>> REPLACE
```

> Tokens: 4.5k sent, 1k cache write, 2k cache hit, 120 received. Cost: $0.02 message, $0.05 session.  
> Applied edit to tests/test_x.py  

Now the second half.

> The LLM did not conform to the edit format.  
> Tokens: 5k sent, 80 received. Cost: $0.01 message, $0.06 session.  
"""
SECOND = """
# aider chat started at 2026-03-02 09:00:00

> Models: gpt-4o with diff edit format, weak model gpt-3.5-turbo  

#### hello  
> 1,469 prompt tokens, 68 completion tokens, $0.168365 cost  

Hello!
"""


def write(tmp_path: Path, *chats: str) -> Path:
    path = tmp_path / "history"
    path.write_text("".join(chats))
    return path


def test_each_chat_is_a_session_of_prompts_and_answers(tmp_path: Path) -> None:
    path = write(tmp_path, FIRST, SECOND)
    format = detect_format(path)
    assert format is not None
    assert format.name == "aider"
    events = list(read_transcript(path))
    assert not [e for e in events if isinstance(e, UnreadableEntry)]
    opened = [e.session for e in events if isinstance(e, SessionStarted)]
    assert [s.started for s in opened] == [1772359200.0, 1772442000.0]
    told = messages(events)
    assert [m.role for m in told] == ["user", "assistant", "assistant", "user", "assistant"]
    assert told[0].content == "please add a test\n\nfor rounding"
    assert told[2].content == "Now the second half."
    assert len({m.platform_message_id for m in told[:3]}) == 3


def test_headings_and_quotations_of_an_answer_stay_in_it(tmp_path: Path) -> None:
    answer = messages(read_transcript(write(tmp_path, FIRST)))[1].text
    assert answer.startswith("Here is a test.\n\n#### What it does\n\n> a quotation in the answer")
    assert answer.endswith("```\n>>>>>>> REPLACE\n```")


def test_what_aider_says_is_kept_beside_the_message_before_it(tmp_path: Path) -> None:
    told = messages(read_transcript(write(tmp_path, FIRST)))
    assert told[0].meta is None
    assert (told[1].meta or {})["edited"] == ["tests/test_x.py"]
    assert "Applied edit to tests/test_x.py" in (told[1].meta or {})["notes"]
    assert (told[2].meta or {})["edit_failed"] is True


def test_model_tokens_and_cost_are_learned_from_both_spellings(tmp_path: Path) -> None:
    first, second = (
        e.session
        for e in read_transcript(write(tmp_path, FIRST, SECOND))
        if isinstance(e, SessionUpdated)
    )
    assert first.model == "gpt-x"
    assert first.tokens == Tokens(input=9500, output=200, cache_read=2000, cache_write=1000)
    assert first.cost == Decimal("0.03")
    assert second.model == "gpt-4o"
    assert second.tokens == Tokens(input=1469, output=68)
    assert second.cost == Decimal("0.168365")


def test_ids_are_stable_while_the_file_grows_and_in_a_copy(tmp_path: Path) -> None:
    def ids(path: Path) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        id = ""
        for event in read_transcript(path):
            if isinstance(event, SessionStarted):
                id = event.session.id
            elif not isinstance(event, SessionUpdated | UnreadableEntry):
                found.append((id, event.platform_message_id))
        return found

    before = ids(write(tmp_path, FIRST))
    grown = ids(write(tmp_path, FIRST, SECOND))
    assert grown[: len(before)] == before
    copy = tmp_path / "copy" / "notes.md"
    copy.parent.mkdir()
    copy.write_text(SECOND)
    assert ids(copy) == grown[len(before) :]


def test_a_history_whose_spaces_an_editor_took_away_is_read_too(tmp_path: Path) -> None:
    bare = "\n".join(line.rstrip() for line in SECOND.split("\n"))
    told = messages(read_transcript(write(tmp_path, bare)))
    assert [(m.role, m.content) for m in told] == [("user", "hello"), ("assistant", "Hello!")]
