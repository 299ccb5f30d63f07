"""Updates, and the server as a service of systemd: a stand-in starts what the units say."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from .lab import NAME, MatrixLab

OLDER = "1.162.0"
# Starts the command of a unit, knows its pid and stops it with the unit's signal.
SYSTEMCTL = f"""#!{sys.executable} -SI
import os, shlex, signal, subprocess, sys, time
from pathlib import Path
words = [word for word in sys.argv[1:] if word != "--user"]
units = Path(os.environ["HOME"]) / ".config/systemd/user"
run = Path(os.environ["HOME"]) / "run"
run.mkdir(exist_ok=True)
verb = words[0]
unit = next((word for word in words[1:] if word.endswith(".service")), "")
pid_file = run / unit

def read_pid():
    try:
        pid = int(pid_file.read_text())
        state = Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0]
        return pid if state != "Z" else 0
    except (OSError, ValueError):
        return 0

def read_field(name, default=""):
    for line in (units / unit).read_text().splitlines():
        if line.startswith(name + "="):
            return line.partition("=")[2]
    return default

def stop():
    pid = read_pid()
    if pid:
        os.kill(pid, getattr(signal, read_field("KillSignal", "SIGTERM")))
        while read_pid():
            time.sleep(0.05)

if verb == "restart":
    stop()
    words = shlex.split(read_field("ExecStart"))
    command = [word.replace("%%", "%").replace("$$", "$") for word in words]
    child = subprocess.Popen(command, start_new_session=True, cwd="/", stdin=-3,
                             stdout=-3, stderr=-3)
    pid_file.write_text(str(child.pid))
elif verb == "disable":
    stop()
elif verb == "show" and unit:
    pid = read_pid()
    print("ActiveState=" + ("active" if pid else "inactive"))
    print("SubState=" + ("running" if pid else "dead"))
    print(f"MainPID={{pid}}")
"""


def make_broken_wheel(folder: Path) -> None:
    """Write a Synapse that ends with an error when it is started."""
    folder.mkdir()
    info = "matrix_synapse-99.0.0.dist-info"
    with zipfile.ZipFile(folder / "matrix_synapse-99.0.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("synapse/__init__.py", "")
        wheel.writestr("synapse/app/__init__.py", "")
        wheel.writestr("synapse/app/homeserver.py", "raise SystemExit('it does not work')\n")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: matrix-synapse\nVersion: 99.0.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_services_of_systemd_run_the_server_and_an_update_that_fails_is_undone(
    lab: MatrixLab,
) -> None:
    lab.add_tool("systemctl", SYSTEMCTL)
    units = lab.folder / ".config" / "systemd" / "user"
    assert "loginctl enable-linger" in lab.set_up(f"--synapse-version={OLDER}")
    synapse = (units / "rekindle-matrix-synapse.service").read_text()
    assert "After=rekindle-matrix-postgres.service" in synapse
    assert "KillSignal=SIGINT" in (units / "rekindle-matrix-postgres.service").read_text()
    assert "Nothing to do" in lab("matrix", "setup")
    status = lab.status()
    assert (status["runner"], status["synapse"]["version"]) == ("systemd", OLDER)
    room = lab.connect_bot().create_room()
    lab.connect_bot().send(room, "before the update")

    make_broken_wheel(lab.folder / "wheels")
    lab.env["UV_FIND_LINKS"] = str(lab.folder / "wheels")
    refused = lab.refusal("matrix", "update", "--synapse-version=99.0.0", code=1)
    assert f"Synapse 99.0.0 did not start, so {OLDER} runs again" in refused
    assert lab.status()["synapse"]["version"] == OLDER
    assert lab.connect_bot().read(room) == [(f"@rekindle:{NAME}", "before the update")]
    assert lab.status()["last_backup"] is not None
    assert lab.status()["interrupted"] is None

    del lab.env["UV_FIND_LINKS"]
    # Killed with -9 on the way, the update is completed by the next one.
    assert lab.kill_at(["Wrote a backup"], "matrix", "update")
    assert f"from {OLDER} to " in lab("matrix", "update")
    assert lab.status()["synapse"]["version"] > OLDER
    assert lab.connect_bot().read(room) == [(f"@rekindle:{NAME}", "before the update")]
    assert len(list((lab.home / "matrix" / "environments").iterdir())) == 1
    lab("matrix", "teardown", "--yes-delete-everything")
    assert list(units.iterdir()) == []
    assert len(list((lab.home / "matrix-backups").glob("*.tar.gz"))) >= 2
