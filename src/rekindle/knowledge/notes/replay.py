"""Replay a project's history: learn from earlier sessions only, then see what a later one really did.

Each session of a project with enough earlier ones is asked for at its start and at every failure. Three
ways to answer are compared on the same sessions: recall, the naive list of the commonest commands and
files, and the limit (everything that was known before at all).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple, Protocol

from rekindle.analytics.cluster_stats import Rate, compute_rate
from rekindle.judging.rules.evidence import Evidence
from rekindle.types import Message, ToolCall

from .calls import ObservedCall, read_forms
from .command_forms import is_everyday, parse_command_line
from .failures import choose_call_notes, choose_failure_notes, render_failure
from .note import NO_DECISIONS, NoteDecisions, Recall, RecalledNote, make_note_id
from .observations import MAX_CALLS_TO_FIX
from .playbook import Playbook, build_playbook
from .recall import choose_start_notes, render_start
from .records import SessionObservation, fill_slots

MIN_EARLIER_SESSIONS = 5
MAX_PROJECTS_OF_OWN = 2  # a command that more projects use is nobody's own
NAIVE_COMMANDS, NAIVE_FILES, NAIVE_FORMS = 12, 8, 2
NOTES = "notes"  # the way that is in use
METRICS = ("given", "came_true", "commands_told", "files_told", "mended", "beside", "stopped")
PARTS = ("commands_true", "files_true")  # of what came true
_NO_RESULT = Message("tool")
_WORD = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|[^\s;&|]+""")
_PLAIN_WORDS = frozenset(("&&", "cd", "||", "2>&1", "echo", "head", "tail"))


class ReplaySession(NamedTuple):
    """A session to replay: what was observed, and what it really said and did."""

    observation: SessionObservation
    root: str
    request: str
    calls: Sequence[ObservedCall]


class ReplayedRecall(NamedTuple):
    """One recall of the replay, to be read: what was said, and what came of it."""

    session: str
    moment: str  # start, failure or call
    asked: str
    text: str
    hits: int
    misses: int


class SessionScore(NamedTuple):
    """How one session's recalls did: per metric the number that counts and the number of all."""

    session: str
    counts: Mapping[str, tuple[int, int]]
    tokens: tuple[int, int]  # at the start, and at all failures
    answered_failures: int
    recalls: tuple[ReplayedRecall, ...] = ()


class ReplayResult(NamedTuple):
    """The scores of all replayed sessions for one way to answer.

    `families` names the conversation of each session that goes on from another one.
    """

    name: str
    scores: Sequence[SessionScore]
    families: Mapping[str, str] = MappingProxyType({})

    def compute_rates(self) -> dict[str, Rate]:
        """Return each metric with an interval that treats a conversation as one observation."""
        return {
            metric: compute_rate(self._count_families(metric), len(self.scores))
            for metric in (*METRICS, *PARTS)
        }

    def _count_families(self, metric: str) -> dict[str, tuple[int, int]]:
        """Return the counts of a metric by conversation: its sessions are not independent."""
        found: dict[str, tuple[int, int]] = {}
        for one in self.scores:
            family = self.families.get(one.session, one.session)
            (hits, total), (more_hits, more) = found.get(family, (0, 0)), one.counts[metric]
            found[family] = hits + more_hits, total + more
        return found

    @property
    def tokens_per_start(self) -> float | None:
        """The tokens of a start that said something."""
        given = [one.tokens[0] for one in self.scores if one.tokens[0]]
        return sum(given) / len(given) if given else None

    @property
    def tokens_per_failure(self) -> float | None:
        """The tokens of an answer to a failure."""
        answered = sum(one.answered_failures for one in self.scores)
        return sum(one.tokens[1] for one in self.scores) / answered if answered else None


class Recaller(Protocol):
    """A way to answer at the start and at a failure."""

    def answer_start(self, playbook: Playbook, request: str, branch: Sequence[int] = ()) -> Recall:
        """Return what to say at the start."""
        ...

    def answer_failure(self, playbook: Playbook, root: str, call: ToolCall, result: str) -> Recall:
        """Return what to say when this call failed."""
        ...

    def answer_call(self, playbook: Playbook, root: str, call: ToolCall) -> Recall:
        """Return what to say in place of this call, if it is known to fail."""
        ...


class NoteChoices:
    """The learned notes of each moment of one session, chosen once for all ways to tell them."""

    def __init__(self) -> None:
        self._start: list[RecalledNote] | None = None
        self._failures: dict[int, list[RecalledNote]] = {}

    def choose_start(
        self, playbook: Playbook, request: str, branch: Sequence[int]
    ) -> list[RecalledNote]:
        """Return the notes for the start."""
        if self._start is None:
            self._start = choose_start_notes(playbook, request, branch=branch)
        return self._start

    def choose_failure(
        self, playbook: Playbook, root: str, call: ToolCall, result: str
    ) -> list[RecalledNote]:
        """Return the notes for a failed call; the session holds its calls as long as this lives."""
        if id(call) not in self._failures:
            self._failures[id(call)] = choose_failure_notes(playbook, root, call, result)
        return self._failures[id(call)]


class NotesRecaller:
    """Recall as it is, or as it would be with other decisions about notes."""

    def __init__(self, choices: NoteChoices, decisions: NoteDecisions = NO_DECISIONS) -> None:
        self._choices, self._decisions = choices, decisions

    def answer_start(self, playbook: Playbook, request: str, branch: Sequence[int] = ()) -> Recall:
        """Tell the notes that were chosen, below those that were added."""
        learned = map(self._decisions.reword, self._choices.choose_start(playbook, request, branch))
        return render_start(playbook, [*self._decisions.added, *learned])

    def answer_failure(self, playbook: Playbook, root: str, call: ToolCall, result: str) -> Recall:
        """Tell the notes that were chosen."""
        notes = self._choices.choose_failure(playbook, root, call, result)
        return render_failure([*map(self._decisions.reword, notes)])

    def answer_call(self, playbook: Playbook, root: str, call: ToolCall) -> Recall:
        """Tell the note about a call that is known to fail."""
        return render_failure(choose_call_notes(playbook, root, call))


class NaiveRecaller:
    """The commonest commands and files; at a failure, what worked with the same command."""

    def __init__(self, commands: int = NAIVE_COMMANDS, files: int = NAIVE_FILES) -> None:
        self._commands, self._files = commands, files

    def answer_start(self, playbook: Playbook, request: str, branch: Sequence[int] = ()) -> Recall:
        """List the commonest commands and files."""
        commands = sorted(playbook.commands, key=lambda one: -len(one.sessions))[: self._commands]
        files = sorted(playbook.files, key=lambda one: -len(one.sessions))[: self._files]
        return _list_plainly(
            [one.name for one in commands if len(one.sessions) > 1],
            [one.name for one in files if len(one.sessions) > 1],
        )

    def answer_failure(self, playbook: Playbook, root: str, call: ToolCall, result: str) -> Recall:
        """List the commonest forms of the failed command."""
        keys = {form.key for form in read_forms(call, root)}
        known = [one for one in playbook.commands if one.name in keys]
        return _list_plainly([form.text for one in known for form in one.forms[:NAIVE_FORMS]], [])

    def answer_call(self, playbook: Playbook, root: str, call: ToolCall) -> Recall:
        """Know of no call that it fails."""
        return Recall()


class LimitRecaller:
    """Everything that was known before: no way to answer, only the limit of all."""

    def answer_start(self, playbook: Playbook, request: str, branch: Sequence[int] = ()) -> Recall:
        """List every known command and file."""
        return _list_plainly(
            [one.name for one in playbook.commands], [one.name for one in playbook.files]
        )

    def answer_failure(self, playbook: Playbook, root: str, call: ToolCall, result: str) -> Recall:
        """List every known fix of the failed command and every form of it."""
        keys = {form.key for form in read_forms(call, root)}
        fixes = [one.fix.fixed_text for one in playbook.fixes if one.fix.key in keys]
        forms = [form.text for one in playbook.commands if one.name in keys for form in one.forms]
        return _list_plainly(fixes + forms, [])

    def answer_call(self, playbook: Playbook, root: str, call: ToolCall) -> Recall:
        """Know of no call that it fails."""
        return Recall()


def _list_plainly(commands: Sequence[str], files: Sequence[str]) -> Recall:
    notes = [
        *(
            RecalledNote(make_note_id("command", one), "command", one, command=one)
            for one in commands
        ),
        *(RecalledNote(make_note_id("place", one), "place", one, path=one) for one in files),
    ]
    text = "\n".join(note.text for note in notes)
    return Recall(text, len(text) // 4, tuple(notes))


def find_common_commands(projects: Iterable[Sequence[SessionObservation]]) -> frozenset[str]:
    """Return the commands, by their keys, that too many projects use to be their own.

    A folder with a handful of sessions is no project that says what is usual.
    """
    users: Counter[str] = Counter()
    for sessions in projects:
        if len(sessions) > MIN_EARLIER_SESSIONS:
            users.update({use.key for one in sessions for use in one.commands})
    return frozenset(key for key, count in users.items() if count > MAX_PROJECTS_OF_OWN)


def make_recallers(variants: Mapping[str, NoteDecisions] | None = None) -> dict[str, Recaller]:
    """Return the ways to answer that are compared in a session, by name.

    With `variants`, these are recall as it is and as it would be with other decisions.
    """
    choices = NoteChoices()
    notes = NotesRecaller(choices)
    if variants is None:
        return {NOTES: notes, "naive list": NaiveRecaller(), "limit": LimitRecaller()}
    others = {name: NotesRecaller(choices, one) for name, one in variants.items()}
    return {NOTES: notes, **others}


def replay_session(
    one: ReplaySession,
    earlier: Iterable[SessionObservation],
    common: AbstractSet[str],
    variants: Mapping[str, NoteDecisions] | None = None,
    project: str = "",
) -> Iterator[tuple[str, SessionScore]]:
    """Yield the score of each way to answer for a session, after its project's earlier ones."""

    def is_own(key: str) -> bool:
        return key not in common and not is_everyday(key)

    playbook = build_playbook(earlier, project=project)
    for name, recaller in make_recallers(variants).items():
        yield name, _replay_session(one, playbook, recaller, is_own)


def _replay_session(
    one: ReplaySession, playbook: Playbook, recaller: Recaller, is_own: Callable[[str], bool]
) -> SessionScore:
    start = recaller.answer_start(playbook, one.request, one.observation.branch)
    counts: Counter[str] = Counter()
    recalls = [_score_start(one, start, is_own, counts)]
    failure_tokens = answered = 0
    stopped: set[str] = set()
    for index, call in enumerate(one.calls):
        if call.failed is not None:
            before = recaller.answer_call(playbook, one.root, call.call)
            new = {note.id for note in before.notes} - stopped
            stopped |= new
            counts["stopped"] += len(new)
            counts["stopped_failed"] += len(new) if call.failed else 0
            if new:
                recalls.append(_describe_stopped_call(one, call, before))
        if not call.failed:
            continue
        recall = recaller.answer_failure(playbook, one.root, call.call, call.result)
        failure_tokens += recall.tokens
        answered += bool(recall.notes)
        if (difference := _find_difference(one, index)) is not None:
            recalls.append(_score_failure(one, index, recall, start, difference, counts))
    pairs = {
        "given": (int(bool(start.notes)), 1),
        "came_true": (counts["true"], counts["advised"]),
        "commands_true": (counts["commands_told"], counts["advised_commands"]),
        "files_true": (counts["files_told"], counts["advised"] - counts["advised_commands"]),
        "commands_told": (counts["commands_told"], counts["commands"]),
        "files_told": (counts["files_told"], counts["files"]),
        "mended": (counts["mended"], counts["mendable"]),
        "beside": (counts["beside"], counts["answered"]),
        "stopped": (counts["stopped_failed"], counts["stopped"]),
    }
    return SessionScore(
        one.observation.session, pairs, (start.tokens, failure_tokens), answered, tuple(recalls)
    )


def _score_start(
    one: ReplaySession, start: Recall, is_own: Callable[[str], bool], counts: Counter[str]
) -> ReplayedRecall:
    used = {use.key for use in one.observation.commands if use.worked and is_own(use.key)}
    files = {use.path for use in one.observation.files}
    commands = {
        form.key
        for note in start.notes
        if note.command
        for form in parse_command_line(fill_slots(note.command), one.root).forms
        if is_own(form.key)
    }
    paths = {note.path for note in start.notes if note.path}
    hits = len(commands & used) + len(paths & files)
    counts.update(
        advised=len(commands) + len(paths),
        advised_commands=len(commands),
        true=hits,
        commands=len(used),
        commands_told=len(commands & used),
        files=len(files),
        files_told=len(paths & files),
    )
    misses = len(commands) + len(paths) - hits
    session = one.observation.session
    return ReplayedRecall(session, "start", one.request[:300], start.text, hits, misses)


def _describe_stopped_call(
    one: ReplaySession, call: ObservedCall, before: Recall
) -> ReplayedRecall:
    asked = Evidence(call.call, _NO_RESULT).command[:300]
    hits, misses = (1, 0) if call.failed else (0, 1)
    return ReplayedRecall(one.observation.session, "call", asked, before.text, hits, misses)


def _find_difference(one: ReplaySession, index: int) -> set[str] | None:
    """Return the words that the fix of a failed call has and the failed call has not."""
    failed = one.calls[index]
    keys = {form.key for form in read_forms(failed.call, one.root)}
    for later in one.calls[index + 1 : index + 1 + MAX_CALLS_TO_FIX]:
        if later.failed is not False:
            continue
        if keys & {form.key for form in read_forms(later.call, one.root)}:
            before, after = _split_words(failed.call), _split_words(later.call)
            return {word for word in after - before if len(word) > 1} - _PLAIN_WORDS or None
    return None


def _split_words(call: ToolCall) -> set[str]:
    command = Evidence(call, _NO_RESULT).command
    return {word.strip("'\"") for word in _WORD.findall(command)}


def _score_failure(
    one: ReplaySession,
    index: int,
    recall: Recall,
    start: Recall,
    difference: set[str],
    counts: Counter[str],
) -> ReplayedRecall:
    named = sum(word in recall.text for word in difference)
    counts["mendable"] += 1
    counts["mended"] += bool(named or any(word in start.text for word in difference))
    counts["answered"] += bool(recall.notes)
    counts["beside"] += bool(recall.notes) and not named
    asked = Evidence(one.calls[index].call, _NO_RESULT).command[:300]
    misses = int(bool(recall.notes) and not named)
    return ReplayedRecall(one.observation.session, "failure", asked, recall.text, named, misses)
