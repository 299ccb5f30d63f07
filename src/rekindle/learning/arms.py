"""Assign sessions to arms: those of the running experiment, or the share that is kept cold."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from rekindle.experiments.experiment import COLD, Experiment, draw_arm
from rekindle.store import Store


class ArmAssignment(NamedTuple):
    """The arm assigned to a session, and the experiment it takes part in, if any."""

    arm: str
    experiment: Experiment | None = None


def draw_assignment(store: Store, session: str, control_share: float) -> ArmAssignment | None:
    """Assign the arm in the running experiment or, for a share of all sessions, cold."""
    running = store.experiments.get_running()
    if running is not None:
        return ArmAssignment(draw_arm(running, session), running)
    return draw_cold_share(session, control_share)


def draw_cold_share(session: str, control_share: float) -> ArmAssignment | None:
    """Keep a share of all sessions cold outside of experiments."""
    return ArmAssignment(COLD) if hash_to_fraction(session) < control_share else None


def hash_to_fraction(name: str) -> float:
    """Hash a name to a fraction from 0 to 1."""
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=8, person=b"cold").digest()
    return int.from_bytes(digest) / 2**64
