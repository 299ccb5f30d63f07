"""Reading, writing and patching files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.agent.tools.builtin.patch import PATCH
from rekindle.agent.tools.builtin.read_file import LINE_CHARACTERS, READ_FILE
from rekindle.agent.tools.builtin.write_file import WRITE_FILE
from rekindle.agent.tools.tool import ToolContext
from tests.unit.agent.tools.calling import call, error, text

# -- read_file


def test_lines_come_with_their_numbers(context: ToolContext, work: Path) -> None:
    (work / "a").write_text("one\ntwo\nthree\n")
    assert text(READ_FILE, context, path="a") == "1|one\n2|two\n3|three"
    (work / "b").write_text("one\r\n\r\nend")
    assert text(READ_FILE, context, path="b") == "1|one\n2|\n3|end"


def test_a_page_says_which_lines_it_has_and_how_to_go_on(context: ToolContext, work: Path) -> None:
    (work / "a").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    page = text(READ_FILE, context, path="a", offset=99, limit=3)
    assert (
        page
        == " 99|line 99\n100|line 100\n101|line 101\n[lines 99–101 of 1,000; continue with offset=102]"
    )
    last = text(READ_FILE, context, path="a", offset=999)
    assert last == " 999|line 999\n1000|line 1000\n[lines 999–1000 of 1,000]"
    assert "has 1000 lines, none at 1001" in error(READ_FILE, context, path="a", offset=1001)
    assert text(READ_FILE, context, path="a").endswith(
        "[lines 1–500 of 1,000; continue with offset=501]"
    )


def test_paging_through_a_file_shows_every_line_once(context: ToolContext, work: Path) -> None:
    lines = [f"{n} " + "x" * (n % 700) for n in range(1, 800)]
    (work / "a").write_text("\n".join(lines))
    seen: list[str] = []
    offset = 1
    while offset:
        page = text(READ_FILE, context, path="a", offset=offset)
        body, _, foot = page.rpartition("\n[lines ")
        seen += [line.partition("|")[2] for line in body.split("\n")]
        _, _, more = foot.partition("offset=")
        offset = int(more.rstrip("]")) if more else 0
    assert seen == lines


def test_a_very_long_line_is_cut_and_the_next_one_is_found(
    context: ToolContext, work: Path
) -> None:
    (work / "a").write_text("ä" * 3_000_000 + "\nnext\n")
    page = text(READ_FILE, context, path="a")
    assert page.startswith("1|" + "ä" * LINE_CHARACTERS + " [… about 5,996,00")
    assert page.endswith("\n2|next")


def test_a_big_file_is_read_in_pages_without_loading_it(context: ToolContext, work: Path) -> None:
    with (work / "big").open("wb") as file:
        file.write(b"start\n" * 3000)
        file.truncate(20_000_000_000)
    page = text(READ_FILE, context, path="big", limit=2)
    assert page.startswith("1|start\n2|start\n[lines 1–2 of more than ")


def test_binary_files_and_others_that_are_no_text_are_refused(
    context: ToolContext, work: Path
) -> None:
    (work / "a").write_bytes(b"\x7fELF\0\0")
    (work / "b").write_bytes("hi".encode("utf-16"))
    assert error(READ_FILE, context, path="a") == "a: cannot show a binary file (6 bytes)"
    assert "UTF-16" in error(READ_FILE, context, path="b")
    assert "is a folder" in error(READ_FILE, context, path=".")
    (work / "c").write_bytes(b"a\xffb\n")
    assert text(READ_FILE, context, path="c") == "1|a\ufffdb"


def test_an_empty_file_is_said_to_be_empty(context: ToolContext, work: Path) -> None:
    (work / "a").write_text("")
    assert text(READ_FILE, context, path="a") == "[the file is empty]"


def test_outside_is_refused_and_marked_so(context: ToolContext) -> None:
    result = call(READ_FILE, context, path="/etc/passwd")
    assert result.meta["refused"] is True
    assert "root:" not in result.content


# -- write_file


def test_a_file_is_created_with_its_folders_and_replaced(context: ToolContext, work: Path) -> None:
    assert (
        text(WRITE_FILE, context, path="a/b.txt", content="ä\nb\n")
        == "created a/b.txt: 2 lines, 5 bytes"
    )
    assert (
        text(WRITE_FILE, context, path="a/b.txt", content="x")
        == "replaced a/b.txt: 1 lines, 1 bytes"
    )
    assert (work / "a" / "b.txt").read_text() == "x"
    assert "is a folder" in error(WRITE_FILE, context, path="a", content="x")
    assert "outside the allowed folders" in error(WRITE_FILE, context, path="../x", content="x")
    assert "not a folder" in error(WRITE_FILE, context, path="a/b.txt/c", content="x")


def test_text_that_is_no_utf8_is_refused(context: ToolContext, work: Path) -> None:
    assert "character 1 cannot be encoded" in error(
        WRITE_FILE, context, path="a", content="x\ud800"
    )
    assert not (work / "a").exists()


# -- patch

CODE = "def a():\n    return 1\n\n\ndef b():\n    return 2\n"


def edit(old: str, new: str, **more: bool) -> dict[str, object]:
    return {"old_text": old, "new_text": new, **more}


def test_edits_apply_in_order_and_show_what_changed(context: ToolContext, work: Path) -> None:
    (work / "a.py").write_text(CODE)
    (work / "a.py").chmod(0o755)
    edits = [edit("return 1\n\n\ndef b():", "return 10\n\n\ndef c():"), edit("def c", "def d")]
    answer = text(PATCH, context, path="a.py", edits=edits)
    assert answer.startswith("patched a.py: 2 edits\n@@ ")
    assert "-    return 1\n+    return 10" in answer
    assert (work / "a.py").read_text() == "def a():\n    return 10\n\n\ndef d():\n    return 2\n"
    assert (work / "a.py").stat().st_mode & 0o777 == 0o755


def test_if_one_edit_fails_nothing_is_changed(context: ToolContext, work: Path) -> None:
    (work / "a.py").write_text(CODE)
    said = error(
        PATCH, context, path="a.py", edits=[edit("return 1", "return 3"), edit("nowhere", "x")]
    )
    assert said.startswith("edits[1].old_text: not found; nothing was changed.")
    assert (work / "a.py").read_text() == CODE


def test_text_that_occurs_twice_is_not_guessed(context: ToolContext, work: Path) -> None:
    (work / "a.py").write_text(CODE)
    said = error(PATCH, context, path="a.py", edits=[edit("    return", "  x")])
    assert "found 2 times (lines 2, 6)" in said
    assert (work / "a.py").read_text() == CODE
    text(PATCH, context, path="a.py", edits=[edit("    return", "  x", replace_all=True)])
    assert (work / "a.py").read_text().count("  x") == 2


def test_when_nothing_matches_the_nearest_text_is_shown(context: ToolContext, work: Path) -> None:
    (work / "a.py").write_text("import os\n\n" + CODE)
    said = error(PATCH, context, path="a.py", edits=[edit("def b():\n    return 3", "x")])
    assert "The most similar text in the file:\n7|def b():\n8|    return 2" in said
    said = error(PATCH, context, path="a.py", edits=[edit("def b():\n  return 2", "x")])
    assert "Only whitespace differs. The file has:\n7|def b():\n8|    return 2" in said
    assert "Nothing similar is in the file" in error(
        PATCH, context, path="a.py", edits=[edit("§§§§§§", "x")]
    )


def test_files_with_carriage_returns_keep_them(context: ToolContext, work: Path) -> None:
    (work / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    text(PATCH, context, path="a", edits=[edit("one\ntwo", "1\n2")])
    assert (work / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([], "edits: needs at least 1 entries"),
        ([edit("", "x")], "edits[0].old_text: must not be empty"),
        ([edit("a", "a")], "edits[0]: old_text and new_text are the same"),
        ([{"old_text": "a"}], "edits[0].new_text: missing"),
    ],
)
def test_edits_that_make_no_sense_are_refused(
    context: ToolContext, work: Path, edits: list[object], said: str
) -> None:
    (work / "f").write_text("a")
    assert said in error(PATCH, context, path="f", edits=edits)


def test_binary_files_are_not_patched(context: ToolContext, work: Path) -> None:
    (work / "a").write_bytes(b"a\xff")
    assert "not UTF-8 at byte 1" in error(PATCH, context, path="a", edits=[edit("a", "b")])
    assert "no such file" in error(PATCH, context, path="nope", edits=[edit("a", "b")])


def test_looking_for_the_nearest_text_in_a_large_file_takes_bounded_time(
    context: ToolContext, work: Path
) -> None:
    (work / "a").write_text(
        "".join(f"    value_{n} = compute({n}, other={n})\n" for n in range(30_000))
    )
    said = error(PATCH, context, path="a", edits=[edit("    value_77 = compute(77, othr=77)", "x")])
    assert "78|    value_77 = compute(77, other=77)" in said
