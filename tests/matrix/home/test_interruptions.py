"""A set-up that is killed with -9 anywhere is completed by the next."""

from __future__ import annotations

from .lab import NAME, MatrixLab

STEPS = (
    "Generated secrets",
    "Installing Synapse",
    "Installed Synapse",
    "Created a database cluster",
    "Started PostgreSQL",
    "Started Synapse",
    "Created the administrator",
    "Created the bot",
)


def test_a_set_up_killed_after_every_step_is_completed_by_the_next(lab: MatrixLab) -> None:
    words = ("matrix", "setup", NAME, *lab.port_options)
    killed: list[str] = []
    while step := lab.kill_at({*STEPS}.difference(killed), *words):
        killed.append(step)
    # A kill that comes late finds the next step done, which is then not said again.
    assert killed == [step for step in STEPS if step in killed]
    assert len(killed) >= len(STEPS) - 2, killed
    # What was interrupted in the middle is not taken for complete.
    lab("matrix", "setup")
    assert lab.status()["healthy"] is True
    assert "Nothing to do" in lab("matrix", "setup")
    assert lab.connect_bot().whoami()["device_id"] == lab.secrets["bot_device_id"]
    admin = lab.log_in("admin", lab.secrets["admin_password"])
    users = admin.get("/_synapse/admin/v2/users")["users"]
    assert {user["name"] for user in users} == {f"@admin:{NAME}", f"@rekindle:{NAME}"}
    folder = lab.home / "matrix"
    assert len(list((folder / "environments").iterdir())) == 1
    assert list(folder.glob("*.part")) == []
    assert list(folder.glob("*.password")) == []


def test_two_set_ups_at_once_do_not_meet(lab: MatrixLab) -> None:
    import fcntl

    with (lab.home / "matrix.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = lab.refusal("matrix", "setup", NAME, code=1)
    assert "Another `rekindle matrix` command is running" in refused
    assert not (lab.home / "matrix").exists()
