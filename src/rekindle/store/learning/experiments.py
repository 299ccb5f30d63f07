"""The experiments and their assignments. Drawing arms and judging happen elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rekindle.errors import InvalidInput, NotFound
from rekindle.experiments.experiment import ArmShare, AssignedSession, Experiment
from rekindle.store.core.engine import Row, StorePart, Transaction
from rekindle.store.core.rows import decode_json, encode_json
from rekindle.store.core.tables import ASSIGNMENTS, EXPERIMENTS
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import validate_name

_EXPERIMENT_COLUMNS = EXPERIMENTS.list_names("num", "state")
IDLE_SECONDS = 3600.0  # a session idle for longer is not expected to continue
# Only the columns that decide whether a call counts, for the sessions of one experiment.
_SELECT_CALLS = (
    "SELECT s.num, c.failed FROM assignments a JOIN sessions s ON s.id = a.root"
    " JOIN calls c ON c.session = s.num WHERE a.experiment = ? AND c.failed IS NOT NULL"
    " AND c.tool_kind <> 'bookkeeping' ORDER BY s.num, c.position, c.number"
)
_SELECT_ASSIGNMENTS = (
    "SELECT a.root, a.owner, a.arm, a.time, s.num, s.ended, s.last_active, s.prelude, o.verdict"
    " FROM assignments a LEFT JOIN sessions s ON s.id = a.root AND s.pruned IS NULL"
    " LEFT JOIN session_outcomes o ON o.session = s.num"
    " WHERE a.experiment = ? ORDER BY a.time, a.root"
)


class Experiments(StorePart):
    """The experiments of a store. One runs at a time: a session cannot be in two."""

    def start(self, experiment: Experiment) -> Experiment:
        """Start an experiment; new sessions take part from now on."""
        validate_name("experiment.name", experiment.name)

        def insert_experiment(tx: Transaction) -> Experiment:
            if rows := tx.run("SELECT name FROM experiments WHERE ended IS NULL"):
                running = unescape_text(rows[0][0])
                raise InvalidInput(f"experiment {running!r} is running: stop it first")
            if tx.run("SELECT 1 FROM experiments WHERE name = ?", (escape_text(experiment.name),)):
                raise InvalidInput(
                    f"experiment {experiment.name!r} already exists: choose another name"
                )
            tx.run(
                EXPERIMENTS.build_insert("num", "ended"),
                (
                    escape_text(experiment.name),
                    "running",
                    encode_json([list(share) for share in experiment.shares]),
                    experiment.seed,
                    encode_json(_build_settings(experiment)),
                    experiment.started,
                ),
            )
            return experiment

        return self._write(insert_experiment)

    def stop(self, name: str) -> Experiment:
        """Stop an experiment: no further session takes part. Assignments are kept."""
        now = self._clock()

        def end_experiment(tx: Transaction) -> Experiment:
            _, experiment = _find_experiment(tx, name)
            if experiment.ended is not None:
                return experiment
            tx.run(
                "UPDATE experiments SET ended = ?, state = 'ended' WHERE name = ?",
                (now, escape_text(name)),
            )
            return experiment._replace(ended=now)

        return self._write(end_experiment)

    def list_all(self) -> list[Experiment]:
        """Return all experiments, newest first."""
        rows = self._select(f"SELECT {_EXPERIMENT_COLUMNS} FROM experiments ORDER BY num DESC")
        return [_row_to_experiment(row) for row in rows]

    def get(self, name: str) -> Experiment:
        """Return the experiment with this name."""
        with self._engine.begin_read() as tx:
            return _find_experiment(tx, name)[1]

    def get_running(self) -> Experiment | None:
        """Return the running experiment, if there is one."""
        rows = self._select(f"SELECT {_EXPERIMENT_COLUMNS} FROM experiments WHERE ended IS NULL")
        return _row_to_experiment(rows[0]) if rows else None

    def record_assignment(
        self, experiment: Experiment, root: str, owner: str | None, arm: str
    ) -> None:
        """Record the arm assigned to a session. A second call has no effect."""
        now = self._clock()

        def insert_assignment(tx: Transaction) -> None:
            num, _ = _find_experiment(tx, experiment.name)
            tx.run(
                f"{ASSIGNMENTS.build_insert()} ON CONFLICT (experiment, root) DO NOTHING",
                (num, escape_text(root), escape_text(owner or ""), arm, now),
            )

        self._write(insert_assignment)

    def list_assignments(self, name: str) -> list[AssignedSession]:
        """Return all assignments of an experiment, with the results of their first calls."""
        now = self._clock()
        with self._engine.begin_read() as tx:
            num, experiment = _find_experiment(tx, name)
            calls = {
                session: _count_first_calls(group, experiment.calls)
                for session, group in groupby(
                    tx.stream(_SELECT_CALLS, (num,)), key=lambda row: row[0]
                )
            }
            return [
                _row_to_assignment(row, calls, experiment, now)
                for row in tx.run(_SELECT_ASSIGNMENTS, (num,))
            ]


def _find_experiment(tx: Transaction, name: str) -> tuple[int, Experiment]:
    rows = tx.run(
        f"SELECT num, {_EXPERIMENT_COLUMNS} FROM experiments WHERE name = ?", (escape_text(name),)
    )
    if not rows:
        known = [
            unescape_text(row[0])
            for row in tx.run("SELECT name FROM experiments ORDER BY num DESC")
        ]
        hint = f"There are: {', '.join(known[:10])}." if known else "There are none yet."
        raise NotFound(f"Experiment not found: {name!r:.80}. {hint}")
    num, *columns = rows[0]
    return num, _row_to_experiment(tuple(columns))


def _build_settings(experiment: Experiment) -> dict[str, Any]:
    template_field = {} if experiment.template is None else {"template": experiment.template}
    return {
        "calls": experiment.calls,
        "planned": experiment.planned,
        "min_effect": experiment.min_effect,
        **template_field,
    }


def _row_to_experiment(row: Row) -> Experiment:
    name, arms, seed, settings, started, ended = row
    shares = tuple(ArmShare(arm, share) for arm, share in decode_json(arms))
    return Experiment(unescape_text(name), shares, seed, started, ended, **decode_json(settings))


def _count_first_calls(rows: Iterable[Row], count: int) -> tuple[int, int]:
    judged = failed = 0
    for _, is_failed in rows:
        if judged < count:
            judged += 1
            failed += is_failed
    return judged, failed


def _row_to_assignment(
    row: Row, calls: dict[int, tuple[int, int]], experiment: Experiment, now: float
) -> AssignedSession:
    root, owner, arm, time, session, ended, active, prelude, verdict = row
    judged, failed = calls.get(session, (0, 0))
    is_idle = session is not None and (ended is not None or now - active > IDLE_SECONDS)
    return AssignedSession(
        unescape_text(root),
        unescape_text(owner) or None,
        arm,
        time,
        judged,
        failed,
        complete=is_idle or judged >= experiment.calls,
        given=prelude is not None,
        deleted=session is None,
        verdict=verdict or "unknown",
    )
