"""How users react: anchored phrases of short messages, in several languages."""

from __future__ import annotations

from rekindle.judging.outcomes.reactions import Reaction, classify_reaction
from tests.cases import check_each

EXAMPLES: dict[Reaction, tuple[str, ...]] = {
    "approval": (
        "thanks!", "Perfect.", "LGTM", "ok, works. great", "wow, it works", "Great, now the other one",
        "Danke!", "ça marche", "perfecto", "funziona", "отлично", "谢谢", "動きました",
    ),
    "correction": (
        "no, use the other file", "No it needs to be the terminal", "that's wrong", "not quite",
        "this is not what I asked for", "mise run lint is still failing", "still getting the same error",
        "it is still displaying it the second time",
        "it doesn't work", "lint fail", "the tests are failing now", "you forgot the docs",
        "why did you delete that?", "I said tabs, not spaces", "das funktioniert nicht",
        "ça ne marche pas", "no funciona", "还是不行",
    ),
    "rejection": (
        "revert that", "can you revert this change?", "please undo your last edit", "undo", "never mind",
        "stop", "No, revert everything", "actually, can you revert that?", "mach das rückgängig",
    ),
    "keep": (
        "commit", "commit and push", "yes, please commit", "ok, let's create the PR", "can you commit?",
        "push this to the branch", "great, commit it", "open a PR for this",
    ),
    "": (
        "now add a test", "yes", "no worries", "no need", "no", "add a case for the still-failing one",
        "All good, but I would replace the name", "what is still failing in ci?", "",
        "thanks to the cache it is slow", "stop the server before the test",
        "Update tests so that they ignore settings (e.g. commit.gpgSign=true)",
        "revert commits are made with git revert", "create a PR description about this change",
        "can you check that it works? thanks", "it is renamed but the binary is still git-sync",
        "perfect is the enemy of good", "great\n\n" * 200,
    ),
}  # fmt: skip


@check_each("text, expected", [(text, kind) for kind, texts in EXAMPLES.items() for text in texts])
def test_a_reaction_is_read_from_the_beginning_of_a_short_message(
    text: str, expected: Reaction
) -> None:
    assert classify_reaction(text) == expected


def test_a_no_that_answers_a_question_is_no_correction() -> None:
    assert classify_reaction("no, leave the file alone") == "correction"
    assert classify_reaction("no, leave the file alone", answers_question=True) == ""
