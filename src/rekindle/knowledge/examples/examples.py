"""Find requests that one command of the project closed, and keep them with made-up values.

Only what no value of a session is in is kept: common words, words of the command, and values that are
made up. What small models copy is how the values of a request are written in the command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from rekindle.knowledge.notes.calls import ObservedCall, read_command
from rekindle.knowledge.notes.command_forms import CommandForm
from rekindle.knowledge.notes.harmless import is_own_command
from rekindle.knowledge.notes.programs import is_worth_telling
from rekindle.knowledge.notes.records import hash_word, list_constants
from rekindle.knowledge.wishes.doubtful_sentences import is_about_secret
from rekindle.knowledge.wishes.wishes import UserTurn

from .made_up import MADE_UP_TEXTS, ValueMaker, list_runs
from .records import SessionExample

MIN_ASKED_WORDS, MAX_ASKED_CHARS = 3, 200
MAX_REQUEST_CHARS = 700  # what is longer is a specification or was pasted
MAX_COMMAND_CHARS = 160
MAX_ANSWER_CHARS = 200
MAX_RESULT_CHARS = 400  # whose values an answer may repeat
MAX_EXAMPLES = 5  # of a session


def find_examples(
    calls: Sequence[ObservedCall],
    lines: Sequence[tuple[CommandForm, ...]],
    turns: Iterable[UserTurn],
    answers: Mapping[int, str],
) -> tuple[SessionExample, ...]:
    """Return the requests of a session that one command closed; `answers` are by the turn's position."""
    asked = {turn.position: turn.text for turn in turns}
    made: dict[int, list[int]] = {}
    for number, call in enumerate(calls):
        made.setdefault(call.turn, []).append(number)
    found: list[SessionExample] = []
    for turn, numbers in made.items():
        if len(numbers) != 1 or turn not in asked or turn not in answers:
            continue
        call, forms = calls[numbers[0]], lines[numbers[0]]
        if call.failed is False and len(forms) == 1 and is_own_command(forms[0].text):
            example = _build_example(asked[turn], forms[0], call, answers[turn])
            found += [example] if example else []
    return tuple(found[:MAX_EXAMPLES])


def _build_example(
    request: str, form: CommandForm, call: ObservedCall, answer: str
) -> SessionExample | None:
    """Put made-up values into a request, its command and its answer; None if one is not understood."""
    asked = request.strip().partition("\n")[0].strip()
    command, answer = read_command(call.call).strip(), answer.strip()
    if (
        len(request) > MAX_REQUEST_CHARS
        or not len(asked) <= MAX_ASKED_CHARS
        or len(list_runs(asked)) < MIN_ASKED_WORDS
        or not len(answer) <= MAX_ANSWER_CHARS
        or not len(command) <= MAX_COMMAND_CHARS
        or not (asked + command + answer).isprintable()
        or not is_worth_telling(form.text)
        or is_about_secret(asked)
    ):
        return None
    digest = hash_word(asked)
    asked, command, answer = _replace_texts(asked, command, answer)
    place = f"cd {form.folder}" if form.folder else ""
    kept = list_constants(f"{place} {form.text} {' '.join(MADE_UP_TEXTS)}")
    values = ValueMaker(asked, kept)
    runs = [run for run in list_runs(command) if not values.is_kept(run)]
    if not runs or not all(map(values.add_value, runs)):
        return None  # the request does not say what the command was given
    told_asked = values.rewrite_request(asked)
    told_answer = values.rewrite_answer(answer, list_runs(call.result[:MAX_RESULT_CHARS]))
    if not told_asked or not told_answer:
        return None
    said = {run.casefold() for run in list_runs(asked + command)}
    learned = {run.casefold() for run in list_runs(call.result[:MAX_RESULT_CHARS])} - said
    if "?" in asked and not any(run.casefold() in learned for run in list_runs(answer)):
        return None  # the answer says nothing that the command told
    told_command = values.rewrite_command(command)
    return SessionExample(form.key, form.text, told_asked, told_command, told_answer, digest)


def _replace_texts(asked: str, command: str, answer: str) -> tuple[str, str, str]:
    """Put made-up texts for those that the request has and the command is given in quotes."""
    try:
        words = shlex.split(command)
    except ValueError:
        return asked, command, answer
    patterns = (re.compile(re.escape(word), re.IGNORECASE) for word in words if " " in word)
    texts = (pattern for pattern in patterns if pattern.search(asked))
    for text, made in zip(texts, MADE_UP_TEXTS, strict=False):
        asked, command, answer = (text.sub(made, one) for one in (asked, command, answer))
    return asked, command, answer
