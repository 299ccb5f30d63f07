"""Much of one thing: a message of 50 MB, ten thousand sessions with one title."""

import random
from pathlib import Path

from rekindle import Message, open_store

LARGE = 50_000_000
TITLES = 10_000


def large_text() -> str:
    rng = random.Random(50)
    words = [rng.randbytes(rng.randint(8, 40)).hex() for _ in range(2000)]
    paragraph = " ".join(rng.choices(words, k=5_000))
    repeated = "\n".join([paragraph] * (LARGE // len(paragraph) + 1))
    return f"{repeated[: LARGE - 20]} lastwordofall"


def test_a_message_of_50_mb_is_stored_found_by_its_last_word_and_comes_back_equal(
    target: str,
) -> None:
    message = Message(role="tool", content=large_text(), tool_call_id="c1")
    with open_store(target) as store:
        session = store.begin(id="large")
        assert store.append(session, message) == [0]
        assert store.append(session, Message(role="user", content="a small one")) == [1]
    with open_store(target) as store:
        assert store.messages("large")[0] == message
        (hit,) = store.search("lastwordofall")
        assert (hit.session.id, hit.message.position) == ("large", 0)
        assert "lastwordofall" in hit.snippet
        assert len(hit.snippet) < 1000
        assert store.verify() == []


def test_ten_thousand_sessions_with_one_title_are_numbered_to_the_last(tmp_path: Path) -> None:
    with open_store(tmp_path / "sessions.db", durability="relaxed") as store:
        for _ in range(TITLES - 1):
            store.append(store.begin(title="Base"), Message(role="user", content="again"))
        assert store.next_title("Base") == f"Base #{TITLES}"
        child = store.fork(store.resolve(f"Base #{TITLES - 1}"))
        assert child.title == f"Base #{TITLES}"
        assert store.resolve("Base").id == child.id
        assert store.resolve(f"Base #{TITLES}").id == child.id
        assert store.resolve("Base #5000").title == "Base #5000"
        titles = {session.title for session in store.recent(TITLES + 1)}
        assert titles == {"Base", *(f"Base #{number}" for number in range(2, TITLES + 1))}
        assert store.verify() == []
