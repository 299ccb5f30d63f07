"""The ways to keep background processes: who keeps them, and where they run if not on this machine.

Elsewhere is a real container and a real sshd. A test runs in all ways (the fixture `kept`), if no mark
of these says why not.
"""

from __future__ import annotations

import pytest

ELSEWHERE = ("embedded, container", "embedded, ssh")
HERE = ("embedded", "supervisor")
WAYS = (*HERE, *ELSEWHERE)

# What these tests ask for is of this machine alone: its folders and files, its /proc, what its own
# checks say before a start, and a tree whose members throw away all that marks them (only a
# subreaper finds those). What other places have of it is asked in test_backends.py, by their means.
here = pytest.mark.parametrize("kept", HERE, indirect=True)
# A control group is one more way to find a tree, and nothing else.
trees = pytest.mark.parametrize("kept", [*HERE, "embedded, control group"], indirect=True)
# The children of these are what can be found in every place; `here` has harder ones.
elsewhere = pytest.mark.parametrize("kept", ELSEWHERE, indirect=True)
# An embedded registry holds the pipes of this machine itself: they go with it.
lasting = pytest.mark.parametrize(
    "kept", ["supervisor", "supervisor, ssh", "embedded, container"], indirect=True
)
