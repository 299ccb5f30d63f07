from __future__ import annotations

from pathlib import Path

from rekindle.sandbox.launch_files import LaunchFiles


def test_what_was_created_is_moved_aside(tmp_path: Path) -> None:
    work, aside = tmp_path / "work", tmp_path / "aside"
    work.mkdir()
    files = LaunchFiles.record([str(work)])
    (work / ".envrc").write_text("evil\n")
    (work / ".vscode").mkdir()
    (work / ".vscode/tasks.json").write_text("{}")
    (work / "main.py").write_text("print(1)\n")
    assert files.restore(str(aside)) == [str(work / ".envrc"), str(work / ".vscode")]
    assert [path.name for path in work.iterdir()] == ["main.py"]
    assert {path.name for path in aside.rglob("*") if path.is_file()} == {".envrc", "tasks.json"}


def test_what_was_changed_or_removed_is_restored(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "config").write_text("[core]\n")
    (git / "hooks/pre-commit").write_text("#!/bin/sh\n")
    (git / "hooks/pre-commit").chmod(0o755)
    files = LaunchFiles.record([str(tmp_path)])
    (git / "config").write_text("[alias]\n")
    (git / "hooks/pre-commit").unlink()
    (git / "hooks/pre-push").write_text("evil")
    files.restore(str(tmp_path / "aside"))
    assert (git / "config").read_text() == "[core]\n"
    assert (git / "hooks/pre-commit").read_text() == "#!/bin/sh\n"
    assert (git / "hooks/pre-commit").stat().st_mode & 0o777 == 0o755
    assert not (git / "hooks/pre-push").exists()


def test_files_that_the_kernel_protects_are_left_to_other_programs(tmp_path: Path) -> None:
    (tmp_path / ".idea").mkdir()
    files = LaunchFiles.record([str(tmp_path)], locked=True)
    (tmp_path / ".idea/workspace.xml").write_text("written by the editor\n")
    assert files.restore(str(tmp_path / "aside")) == []
    assert (tmp_path / ".idea/workspace.xml").exists()
