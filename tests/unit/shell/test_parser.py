"""Command lines taken apart, compared with what a real bash does."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rekindle.shell.parser import UnparsableCommand, parse_commands
from tests.waiting import PATIENCE


def programs(line: str) -> list[str]:
    return sorted(command.words[0].text for command in parse_commands(line) if command.words)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ls -la | sort", ["ls", "sort"]),
        ("a; b && c || d & e", ["a", "b", "c", "d", "e"]),
        ("echo $(a $(b)) `c`", ["a", "b", "c", "echo"]),
        ('echo "$(a "$(b)")"', ["a", "b", "echo"]),
        ("echo '$(a)' \\$(b", None),
        ("cat <(a) > >(b)", ["a", "b", "cat"]),
        ("(a; { b; }) | c", ["a", "b", "c"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while ! a; do b; done < x", ["a", "b"]),
        ("for x in $(a) b; do c $x; done", ["a", "c"]),
        ("[[ -f a && $(b) > c ]] && d", ["b", "d"]),
        ("x=1 y=$(a) b", ["a", "b"]),
        ("a # b; c\nd", ["a", "d"]),
        ("a \\\n  b", ["a"]),
        ("cat <<E; a\n$(b)\nE\nc", ["a", "b", "c", "cat"]),
        ("cat <<'E'\n$(b)\nE\nc", ["c", "cat"]),
        ("cat <<-E\n\tb\n\tE\nc", ["c", "cat"]),
        ("echo ${x:-$(a)} ${y}", ["a", "echo"]),
        ("r''m -\"rf\" x", ["rm"]),
        ("\\rm x", ["rm"]),
        ("a 2>&1 >/dev/null &> x", ["a"]),
    ],
)
def test_every_command_of_a_line_is_found(line: str, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(UnparsableCommand):
            parse_commands(line)
    else:
        assert programs(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "echo 'a",
        'echo "a',
        "echo `a",
        "echo $(a",
        "(a",
        "a)",
        "f() { a; }",
        "function f { a; }",
        "case x in y) a;; esac",
        "x=(1 2)",
        "cat <<E\na",
        "((x=1))",
        "a >",
        "a\rb",
        "a \x00",
        "x" * 200_000,
        "echo " + "$(" * 40 + ")" * 40,
        '"$\\\n(a)"',
        'echo "`b \\"\'\\" ; a ; c \\"\'\\"`"',
    ],
)
def test_what_cannot_be_read_for_sure_is_not_read(line: str) -> None:
    with pytest.raises(UnparsableCommand):
        parse_commands(line)


@pytest.mark.parametrize(
    "word",
    ["$x", "${x}", "a$(b)", "`b`", "*.py", "a?", "[ab]", "{a,b}", "~bob/x", "$'\\x41'", '"$x"'],
)
def test_a_word_that_only_the_shell_knows_is_marked(word: str) -> None:
    command = next(one for one in parse_commands(f"echo {word}") if one.words[0].text == "echo")
    assert not command.words[1].known


@pytest.mark.parametrize("word", ["'$x'", "\\*", '"*"', "a=b", "{}", "~/x", "a#b", "$'abc'", "$"])
def test_a_word_that_is_what_it_looks_like_is_known(word: str) -> None:
    assert parse_commands(f"echo {word}")[0].words[1].known


quoted = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).filter(
    lambda text: all(char >= " " and char != "\x7f" for char in text)
)


@given(st.lists(quoted, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_words_are_those_that_bash_gives_to_a_program(texts: list[str], random) -> None:
    def quote(text: str) -> str:
        ways = [
            shlex.quote(text),
            '"' + "".join(f"\\{c}" if c in '"$`\\' else c for c in text) + '"',
        ]
        if text and text.isascii():
            ways.append("".join(f"\\{char}" for char in text))
        return random.choice(ways)

    line = "printf '%s\\0' " + " ".join(map(quote, texts))
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == [
        word.text for word in parse_commands(line)[0].words[2:]
    ]


PIECES = [
    "canary",
    "canary",
    " ",
    " ",
    "echo",
    "a",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "$(",
    ")",
    "(",
    "`",
    "'",
    '"',
    "\\",
    "{",
    "}",
    "{ ",
    "; }",
    "!",
    "if ",
    "then ",
    "fi",
    "do ",
    "done",
    "while ",
    "for x in ",
    "#",
    "\n",
    "<<E",
    "\nE\n",
    "<<'E'",
    "$",
    "${x:-",
    "$x",
    "=",
    "x=",
    "<(",
    ">(",
    "[[ ",
    " ]]",
    "$((",
    "))",
    "<",
    "2>&1",
    "\\\n",
    "\\'",
    '\\"',
    "\\`",
    "$'",
    '$"',
    "eval ",
    "~",
    "*",
    "-",
    "<<<",
]


AROUND = [
    "@",
    "echo $(@)",
    'echo "$(@)"',
    "echo `@`",
    "(@)",
    "{ @; }",
    "echo a; @",
    "echo a | @",
    "! @",
    "x=$(@)",
    "if @; then echo; fi",
    "for x in 1; do @; done",
    "cat <<E\n$(@)\nE",
    "echo ${x:-$(@)}",
    "echo <(@)",
    '"${x:-`@`}"',
    "[[ -n $(@) ]]",
    "@ # b",
    "echo 'a' @\n@",
    "x=1 @",
    "@ <<'E'\n'\nE",
    "echo $'a' && @",
]


def scrambled(ways: list[str], noise: list[tuple[float, str]]) -> list[str]:
    """A line in which bash mostly does run something, and which is then disturbed."""
    line = "canary"
    for way in ways:
        line = way.replace("@", line)
    for place, piece in noise:
        at = int(place * len(line))
        line = line[:at] + piece + line[at:]
    return [line]


noise = st.tuples(st.floats(0, 1), st.sampled_from(PIECES))
lines = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14) | st.builds(
    scrambled, st.lists(st.sampled_from(AROUND), max_size=3), st.lists(noise, max_size=3)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(["echo", " ", '"', "$", "\\\n", "(", "canary", ")", '"'])
@example(
    [
        '"',
        "`",
        "echo",
        " ",
        '\\"',
        "'",
        '\\"',
        ";",
        "canary",
        ";",
        "echo",
        " ",
        '\\"',
        "'",
        '\\"',
        "`",
        '"',
    ]
)
@example(["echo", " ", "${x:-", "<(", "canary", ")", "}"])
@example(["echo", " ", "\\", "\\", "\n", "canary"])
@given(lines)
def test_no_command_that_bash_runs_is_missed(tmp_path: Path, pieces: list[str]) -> None:
    line = "".join(pieces)
    tools, here = tmp_path / "tools", tmp_path / "here"
    if not tools.exists():
        tools.mkdir()
        here.mkdir()
        (tools / "canary").write_text('#!/bin/sh\n: > "$SUNG"\n')
        (tools / "canary").chmod(0o755)
    sung = tmp_path / "sung"
    sung.unlink(missing_ok=True)
    subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=here,
        env={"PATH": str(tools), "SUNG": str(sung)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    for left in os.listdir(here):
        os.unlink(here / left)
    if not sung.exists():
        return
    try:
        commands = parse_commands(line)
    except UnparsableCommand:
        return
    # `eval` hands its words on: whoever judges looks into them.
    named = [word.text for one in commands for word in one.words[:1]]
    handed = [w.text for one in commands for w in one.words if one.words[0].text == "eval"]
    unknown = any(not one.words[0].known for one in commands if one.words)
    assert "canary" in named or any("canary" in text for text in handed) or unknown, line


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_commands(text)
    except UnparsableCommand:
        pass
    else:
        assert not any(char < " " and char not in "\t\n" for char in text)
