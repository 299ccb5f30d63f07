"""Experiments and their assignments. Nothing here draws or judges: see `warm/trial.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from rekindle.errors import InvalidInput, NotFound
from rekindle.experiments.experiment import Assigned, Share, Trial
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.rows import decode_json, encode_json
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.types import checked_name

_COLUMNS = "name, arms, seed, settings, started, ended"
IDLE = 3600.0  # seconds without a word, after which a session is not expected to go on
# Of each call only what decides whether it counts, for the sessions of one experiment.
_CALLS = (
    "SELECT s.num, c.failed FROM assignments a JOIN sessions s ON s.id = a.root"
    " JOIN calls c ON c.session = s.num WHERE a.trial = ? AND c.failed IS NOT NULL"
    " AND c.work <> 'bookkeeping' ORDER BY s.num, c.position, c.number"
)
_SESSIONS = (
    "SELECT a.root, a.owner, a.arm, a.time, s.num, s.ended, s.last_active, s.prelude"
    " FROM assignments a LEFT JOIN sessions s ON s.id = a.root AND s.pruned IS NULL"
    " WHERE a.trial = ? ORDER BY a.time, a.root"
)


class Trials:
    """The experiments of a store. One runs at a time: a session cannot be in two."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Callable[[Transaction], Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._write = write
        self._clock = clock

    def start(self, trial: Trial) -> Trial:
        """Begin an experiment; new sessions take part from now on."""
        checked_name("experiment.name", trial.name)

        def work(tx: Transaction) -> Trial:
            if rows := tx.run("SELECT name FROM trials WHERE ended IS NULL"):
                running = unescape(rows[0][0])
                raise InvalidInput(f"the experiment {running!r} is running: stop it first")
            if tx.run("SELECT 1 FROM trials WHERE name = ?", (escape(trial.name),)):
                raise InvalidInput(f"there was an experiment {trial.name!r}: take another name")
            tx.run(
                "INSERT INTO trials (name, state, arms, seed, settings, started)"
                " VALUES (?, 'running', ?, ?, ?, ?)",
                (
                    escape(trial.name),
                    encode_json([list(share) for share in trial.shares]),
                    trial.seed,
                    encode_json(_settings(trial)),
                    trial.started,
                ),
            )
            return trial

        return self._write(work)

    def stop(self, name: str) -> Trial:
        """No further session takes part. What was assigned stays."""
        now = self._clock()

        def work(tx: Transaction) -> Trial:
            _, trial = _find(tx, name)
            if trial.ended is not None:
                return trial
            tx.run(
                "UPDATE trials SET ended = ?, state = 'ended' WHERE name = ?", (now, escape(name))
            )
            return trial._replace(ended=now)

        return self._write(work)

    def all(self) -> list[Trial]:
        """All experiments, the newest first."""
        with self._engine.reading() as tx:
            rows = tx.run(f"SELECT {_COLUMNS} FROM trials ORDER BY num DESC")
        return [_trial(row) for row in rows]

    def get(self, name: str) -> Trial:
        """The experiment of that name."""
        with self._engine.reading() as tx:
            return _find(tx, name)[1]

    def running(self) -> Trial | None:
        """The experiment that new sessions take part in, if there is one."""
        with self._engine.reading() as tx:
            rows = tx.run(f"SELECT {_COLUMNS} FROM trials WHERE ended IS NULL")
        return _trial(rows[0]) if rows else None

    def record(self, trial: Trial, root: str, owner: str | None, arm: str) -> None:
        """Remember where a session was assigned. A second time changes nothing."""
        now = self._clock()

        def work(tx: Transaction) -> None:
            num, _ = _find(tx, trial.name)
            tx.run(
                "INSERT INTO assignments (trial, root, owner, arm, time) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (trial, root) DO NOTHING",
                (num, escape(root), escape(owner or ""), arm, now),
            )

        self._write(work)

    def assigned(self, name: str) -> list[Assigned]:
        """All sessions of an experiment, with what is known of their first calls."""
        now = self._clock()
        with self._engine.reading() as tx:
            num, trial = _find(tx, name)
            calls = {
                session: _first(group, trial.calls)
                for session, group in groupby(tx.stream(_CALLS, (num,)), key=lambda row: row[0])
            }
            return [_assigned(row, calls, trial, now) for row in tx.run(_SESSIONS, (num,))]


def _find(tx: Transaction, name: str) -> tuple[int, Trial]:
    rows = tx.run(f"SELECT num, {_COLUMNS} FROM trials WHERE name = ?", (escape(name),))
    if not rows:
        known = [unescape(row[0]) for row in tx.run("SELECT name FROM trials ORDER BY num DESC")]
        hint = f"there are: {', '.join(known[:10])}" if known else "there is none yet"
        raise NotFound(f"no experiment {name!r:.80}; {hint}")
    num, *columns = rows[0]
    return num, _trial(tuple(columns))


def _settings(trial: Trial) -> dict[str, Any]:
    about = {} if trial.template is None else {"template": trial.template}
    return {"calls": trial.calls, "planned": trial.planned, "smallest": trial.smallest, **about}


def _trial(row: Row) -> Trial:
    name, arms, seed, settings, started, ended = row
    shares = tuple(Share(arm, share) for arm, share in decode_json(arms))
    return Trial(unescape(name), shares, seed, started, ended, **decode_json(settings))


def _first(rows: Iterable[Row], count: int) -> tuple[int, int]:
    judged = failed = 0
    for _, is_failed in rows:
        if judged < count:
            judged += 1
            failed += is_failed
    return judged, failed


def _assigned(row: Row, calls: dict[int, tuple[int, int]], trial: Trial, now: float) -> Assigned:
    root, owner, arm, time, session, ended, active, prelude = row
    judged, failed = calls.get(session, (0, 0))
    quiet = session is not None and (ended is not None or now - active > IDLE)
    return Assigned(
        unescape(root),
        unescape(owner) or None,
        arm,
        time,
        judged,
        failed,
        ripe=quiet or judged >= trial.calls,
        given=prelude is not None,
        gone=session is None,
    )
