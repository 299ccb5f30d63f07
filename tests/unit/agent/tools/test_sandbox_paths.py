"""Tools stay inside the allowed folders, whatever the path looks like and links do."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.agent.tools.sandbox_paths import open_file, replace_file, resolve_path
from rekindle.agent.tools.tool import ToolContext
from rekindle.errors import ToolError

SECRET = "the secret outside"


@pytest.fixture
def outside(work: Path) -> Path:
    """A folder beside the allowed one, with links to it from every side."""
    other = work.parent / "outside"
    (other / "deep").mkdir(parents=True)
    (other / "secret").write_text(SECRET)
    (work / "inside").mkdir()
    (work / "inside" / "file").write_text("mine")
    (work / "to_folder").symlink_to(other)
    (work / "to_file").symlink_to(other / "secret")
    (work / "inside" / "up").symlink_to("../..")
    (work / "chain").symlink_to("to_folder")
    (work / "to_inside").symlink_to(work / "inside")
    (work / "loop").symlink_to("loop")
    (work / "dangling").symlink_to(other / "new")
    (work / "root").symlink_to("/")
    return other


def read(context: ToolContext, path: str) -> str:
    with open_file(resolve_path(context, path)) as (opened, _):
        return os.read(opened, 1000).decode()


ESCAPES = [
    "../outside/secret",
    "to_file",
    "to_folder/secret",
    "inside/up/outside/secret",
    "chain/secret",
    "chain/../secret",
    "/etc/passwd",
    "root/etc/passwd",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd/../outside/secret",
    "~/x",
    "~",
    "inside/../../outside/secret",
    "./inside/./../../outside/secret",
    "//etc/passwd",
    "to_inside/up/outside/secret",
    "/dev/stdin",
    "/dev/fd/0",
    "..",
    "inside/../..",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_way_leads_out(context: ToolContext, outside: Path, path: str) -> None:
    with pytest.raises(ToolError, match="outside the allowed folders") as caught:
        read(context, path)
    assert caught.value.refused
    with pytest.raises(ToolError):
        replace_file(resolve_path(context, path), b"x")
    assert (outside / "secret").read_text() == SECRET


@pytest.mark.parametrize(
    "path",
    ["dangling", "to_folder/new", "to_folder/a/b", "inside/up/outside/new", "chain/deep/new"],
)
def test_no_new_file_is_made_outside(context: ToolContext, outside: Path, path: str) -> None:
    with pytest.raises(ToolError, match="outside the allowed folders"):
        replace_file(resolve_path(context, path), b"x")
    assert sorted(os.listdir(outside)) == ["deep", "secret"]
    assert os.listdir(outside / "deep") == []


@pytest.mark.parametrize(
    "path",
    [
        "inside/file",
        "./inside//file",
        "to_inside/file",
        "inside/../inside/file",
        "inside/up/work/inside/file",
    ],
)
def test_ways_that_stay_inside_are_taken(context: ToolContext, outside: Path, path: str) -> None:
    assert read(context, path) == "mine"
    assert read(context, str(context.cwd / path)) == "mine"


def test_the_home_folder_is_known_by_its_sign(context: ToolContext, work: Path) -> None:
    (work / "a").write_text("x")
    assert read(context._replace(environment={"HOME": str(work)}), "~/a") == "x"
    with pytest.raises(ToolError, match="home folder is unknown"):
        read(context._replace(environment={}), "~/a")


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "\ud800"])
def test_what_is_no_path_is_refused(context: ToolContext, path: str) -> None:
    with pytest.raises(ToolError):
        read(context, path)


def test_links_that_lead_in_a_circle_are_refused(context: ToolContext, outside: Path) -> None:
    with pytest.raises(ToolError, match="is a link"):
        read(context, "loop")


def test_only_regular_files_are_opened(context: ToolContext, work: Path) -> None:
    os.mkfifo(work / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(ToolError):
            read(context, name)
    with pytest.raises(ToolError, match="not a regular file"):
        replace_file(resolve_path(context, "pipe"), b"x")


def test_an_allowed_folder_may_itself_be_a_link(
    context: ToolContext, outside: Path, work: Path
) -> None:
    linked = context._replace(folders=(work / "to_folder",))
    assert read(linked, str(work / "to_folder" / "secret")) == SECRET


def test_an_allowed_folder_inside_another_cannot_be_swapped_for_a_link(
    context: ToolContext, outside: Path, work: Path
) -> None:
    (work / "sub").mkdir()
    both = context._replace(folders=(work, work / "sub"))
    (work / "sub").rmdir()
    (work / "sub").symlink_to(outside)
    with pytest.raises(ToolError, match="outside"):
        read(both, "sub/secret")


@pytest.mark.parametrize("swapped", ["a", "a/b", "a/b/file"])
def test_a_link_put_in_after_the_check_is_not_followed(
    context: ToolContext, outside: Path, work: Path, swapped: str
) -> None:
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "file").write_text("mine")
    (outside / "b").mkdir()
    for folder in (outside, outside / "b"):
        (folder / "file").write_text(SECRET)
    place = resolve_path(context, "a/b/file")
    (work / swapped).rename(work / "gone")
    target = outside / "file" if swapped.endswith("file") else outside
    (work / swapped).symlink_to(target)
    with pytest.raises(ToolError), open_file(place) as (opened, _):
        raise AssertionError(os.read(opened, 100))
    with pytest.raises(ToolError):
        replace_file(place, b"x")
    assert (outside / "file").read_text() == SECRET
    assert (outside / "b" / "file").read_text() == SECRET


def test_swapping_folders_and_links_all_the_time_never_shows_the_outside(
    context: ToolContext, outside: Path, work: Path
) -> None:
    (work / "real").mkdir()
    (work / "real" / "secret").write_text("mine")
    (work / "way").symlink_to("real")
    stop = threading.Event()

    def swap() -> None:
        targets = ["real", str(outside)]
        count = 0
        while not stop.is_set():
            fresh = work / f"fresh{count % 2}"
            fresh.symlink_to(targets[count % 2])
            os.replace(fresh, work / "way")
            count += 1

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[str] = set()
    try:
        for number in range(3000):
            try:
                seen.add(read(context, "way/secret"))
                if number % 10 == 0:
                    replace_file(resolve_path(context, "way/secret"), b"mine")
            except ToolError:
                continue
    finally:
        stop.set()
        swapper.join()
    assert seen == {"mine"}
    assert (outside / "secret").read_text() == SECRET


PARTS = [
    "..",
    ".",
    "inside",
    "to_folder",
    "to_inside",
    "up",
    "chain",
    "root",
    "work",
    "outside",
    "secret",
    "file",
    "loop",
    "dangling",
    "new",
    "",
    "proc",
    "self",
    "etc",
    "~",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=7),
    st.sampled_from(["", "/", "~/", "//", "./"]),
)
def test_every_path_is_inside_or_refused(
    context: ToolContext, work: Path, parts: list[str], start: str
) -> None:
    if not (work / "inside").exists():
        other = work.parent / "outside"
        other.mkdir(exist_ok=True)
        (work / "inside").mkdir()
        (work / "inside" / "up").symlink_to("../..")
        (work / "to_folder").symlink_to(other)
        (work / "chain").symlink_to("to_folder")
        (work / "root").symlink_to("/")
    path = start + "/".join(parts)
    try:
        place = resolve_path(context, path)
        replace_file(place, b"x")
    except ToolError:
        pass
    else:
        assert os.path.realpath(place.absolute).startswith(os.path.realpath(work) + "/")
    assert os.listdir(work.parent / "outside") == []
    assert sorted(os.listdir(work.parent)) == ["outside", "work"]


# -- writing


def test_a_file_is_replaced_with_its_mode_kept(context: ToolContext, work: Path) -> None:
    file = work / "run.sh"
    file.write_text("old")
    file.chmod(0o751)
    assert replace_file(resolve_path(context, "run.sh"), b"new") is False
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o7777 == 0o751


def test_a_new_file_gets_its_folders_and_the_usual_mode(context: ToolContext, work: Path) -> None:
    assert replace_file(resolve_path(context, "a/b/c"), b"new") is True
    umask = os.umask(0)
    os.umask(umask)
    assert (work / "a" / "b" / "c").stat().st_mode & 0o777 == 0o666 & ~umask
    assert os.listdir(work / "a" / "b") == ["c"]


def test_writing_through_a_link_changes_its_target_and_keeps_the_link(
    context: ToolContext, work: Path
) -> None:
    (work / "real").write_text("old")
    (work / "link").symlink_to("real")
    replace_file(resolve_path(context, "link"), b"new")
    assert (work / "link").is_symlink()
    assert (work / "real").read_text() == "new"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    context: ToolContext, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a").write_text("old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="a: No space left on device"):
        replace_file(resolve_path(context, "a"), b"new")
    assert (work / "a").read_text() == "old"
    assert os.listdir(work) == ["a"]


def test_readers_see_the_old_or_the_new_file_never_half_of_it(
    context: ToolContext, work: Path
) -> None:
    texts = [b"a" * 200_000, b"b" * 200_000]
    (work / "f").write_bytes(texts[0])
    stop = threading.Event()
    seen: set[bytes] = set()

    def look() -> None:
        while not stop.is_set():
            seen.add((work / "f").read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(100):
        replace_file(resolve_path(context, "f"), texts[number % 2])
    stop.set()
    reader.join()
    assert seen <= set(texts)


def test_a_missing_file_is_answered_with_near_names(context: ToolContext, work: Path) -> None:
    (work / "settings.py").write_text("x")
    with pytest.raises(ToolError, match=r"setings.py: no such file; did you mean settings.py\?"):
        read(context, "setings.py")
    with pytest.raises(ToolError, match="nowhere/x: no such file or folder"):
        read(context, "nowhere/x")
