"""Hide what is in the folder of temporary files, where anybody may have put it.

What a command writes there, and where it keeps its cache, is harmless.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from rekindle.judging.rules.text_patterns import split_words
from rekindle.shell.wrappers import is_assignment

_CACHE_VARIABLES = split_words(
    """
    gocache gomodcache gotmpdir gocoverdir tmpdir temp tmp xdg_cache_home npm_config_cache pip_cache_dir
    uv_cache_dir cargo_target_dir yarn_cache_folder ruff_cache_dir mypy_cache_dir golangci_lint_cache
    turbo_cache_dir pytest_debug_temproot pre_commit_home coverage_file
    """
)
_OUTPUT_OPTIONS = split_words(
    """
    -o -out --out --output --outfile --out-file --output-file --outdir --out-dir --output-dir
    -coverprofile --coverprofile -cpuprofile -memprofile -trace --junitxml --log-file --cache-dir
    --basetemp --target-dir -blockprofile
    """
)
_PREFIX = "/tmp/"


def is_harmless_place(name: str, value: str) -> bool:
    """Return whether a variable or an option with this value names a place for a cache or an output."""
    is_place = name.lower() in _CACHE_VARIABLES or name in _OUTPUT_OPTIONS
    return is_place and value.startswith(_PREFIX)


def hide_temporary_paths(form: str) -> str:
    """Return the text of a command with slots for temporary files that it may read or run."""
    if _PREFIX not in form:
        return form
    shown: list[str] = []
    before = ""
    for word in form.split(" "):
        name, sign, value = word.partition("=")
        is_named = bool(sign) and (word[0] == "-" or is_assignment(word))
        if not is_named:
            name, value = before, word
        if _PREFIX in value and not is_harmless_place(name, value):
            shown.append(f"{name}=<path>" if is_named else "<path>")
        else:
            shown.append(word)
        before = word
    return " ".join(shown)


def hide_values(text: str, names: AbstractSet[str]) -> str:
    """Return a form with slots for its paths and numbers; `names` are of the command itself."""
    program, *words = text.split(" ")

    def hide(word: str) -> str:
        if word in ("./...", ".") or word[0] == "-" or "=" in word or word in names:
            return word
        if "/" in word or "." in word.strip("."):
            return "<path>"
        return "<number>" if word.isdigit() else word

    kept = list[str]()
    for word in map(hide, words):
        if word and not (word == "<path>" and kept[-1:] == ["<path>"]):
            kept.append(word)
    return " ".join([program, *kept])
