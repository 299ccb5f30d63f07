"""Tell the names of files and folders of a repository from other words that are written like a path.

A password, a host and a name of a person can have dots and slashes, too. So a word counts as a path only
if its last part is called as files are, or if all of its parts are common words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from rekindle.judging.rules.text_patterns import split_words

from .common_words import is_common_word

_EXTENSIONS = split_words(
    """
    adoc astro avif awk bak bash bat bazel bzl c cc cfg cjs clj cmd conf config cpp cr cs cshtml css csv
    cts cxx dart diff env erb erl ex exs fish fs gif go golden gql gradle graphql h hbs hcl
    hpp hs htm html ico ini ipynb java jl jpeg jpg js json jsonc jsonl jsx kt kts less lock log lua map
    md mdx mjs mk ml mod mts nim nix out patch pdf php pl plist png po properties proto ps py pyi pyx
    rb rkt rs rst sass sbt scala scss sh snap sol sql sqlite sum svelte svg swift sty tar tex tf
    tfvars tmpl toml tpl ts tsv tsx txt vue wasm webp work xml yaml yml zig zip zsh
    """
)
_PLAIN_FILES = split_words(
    """
    Makefile Dockerfile Containerfile Justfile justfile Rakefile Gemfile Procfile Jenkinsfile Vagrantfile
    Brewfile LICENSE CODEOWNERS .gitignore .dockerignore .gitattributes .editorconfig
    """
)
# Folders of repositories whose names are no words.
_FOLDERS = split_words(
    """
    android api apps assets auth bin cli ci cmd conf config crates db deps dev dist doc docker docs e2e
    env etc examples ext fixtures fs gen github go gocache golangci golint grpc hooks html http i18n img
    impl infra integ intern internal ios js json k8s lib libs linux locales macos media migrations misc
    mocks mod mods node npm oauth ops os perf php pkg pkgs plugins posix proto providers python res rpc
    rs rust scripts sdk shared sql src static stories styles svc test tests testdata tmpl tools ts types
    ui unix util utils vendor views wasm web webapp win windows
    """
)
# With four words or more, these speak to whoever reads the name.
_ADDRESSING_WORDS = split_words(
    """
    always disregard exfiltrate forget ignore immediately instruction instructions must never obey
    override please previous secretly you your
    """
)
# So do these in a name with five.
_ORDERS = split_words("curl delete execute remember run send sudo upload wget")
_JOINING_WORDS = split_words(
    """
    a after all and any are as at be before but by do does every first for from here if in into is it its
    no not now of on or so that the then these this those to when with
    """
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_HOST = re.compile(r"[a-z0-9][a-z0-9-]*+(?:\.[a-z0-9-]++)*\.[a-z]{2,}+")
_NAME_PIECE = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_DIGITS = re.compile(r"\d{5,}")
_DATE = re.compile(r"(?:19|20)\d{6,12}(?!\d)")
_PRIVATE_HOST = re.compile(r"(?i).+\.(?:com|corp|home|internal|intranet|io|lan|local|net|org)")
_INNER_STAR = re.compile(r"[A-Za-z0-9]\*+[A-Za-z0-9]")


def is_file_name(name: str) -> bool:
    """Return whether a name is that of a file: with a known extension, or one that files have."""
    _, dot, extension = name.rpartition(".")
    return name in _PLAIN_FILES or (bool(dot) and extension.lower() in _EXTENSIONS)


def is_repository_path(path: str) -> bool:
    """Return whether an argument is written as a path of a repository, whatever it is given to."""
    parts = path.rstrip("/").split("/")
    if ".." in parts or parts[0] == "" or any(part[0] == "@" for part in parts if part):
        return False
    if any(_INNER_STAR.search(part) or has_long_number(part) for part in parts):
        return False
    if parts[0] == "." or parts[-1] == "...":
        return not is_odd_path("/".join(part for part in parts if part != "*"))
    if len(parts) > 1 and looks_like_host(parts[0].lower(), is_whole=False):
        return False
    extension = parts[-1].rpartition(".")[2]
    if is_file_name(parts[-1]) and (extension.islower() or parts[-1].isupper()):
        return True
    return is_plain_folder("/".join(parts))


def reads_like_sentence(path: str) -> bool:
    """Return whether a path says something to its reader: anybody can name a file or folder."""
    parts = path.split("/")
    if is_file_name(parts[-1]):
        parts[-1] = parts[-1].partition(".")[0] or parts[-1]
    words = [[word.lower() for word in _WORD.findall(part)] for part in parts]
    return any(map(_is_sentence, words)) or (
        len(_ADDRESSING_WORDS.intersection(chain.from_iterable(words))) > 1
    )


def _is_sentence(words: Sequence[str]) -> bool:
    if len(words) < 4:
        return False
    if not _ADDRESSING_WORDS.isdisjoint(words):
        return True
    joining = sum(word in _JOINING_WORDS for word in words)
    return len(words) > 4 and (joining > 1 or not _ORDERS.isdisjoint(words))


def is_odd_path(path: str) -> bool:
    """Return whether a part of a path looks like a number, a host, an address or somebody's name."""
    return any(map(_is_odd_part, path.split("/")))


def _is_odd_part(part: str) -> bool:
    name = part.lstrip(".")
    if any(sign in name for sign in "+@*?") or has_long_number(name):
        return True
    return "." in name and not is_file_name(name)


def has_long_number(name: str) -> bool:
    """Return whether a name has more digits in a row than a version, or other ones than a date."""
    return any(_DATE.match(name, one.start()) is None for one in _DIGITS.finditer(name))


def is_private_host(name: str) -> bool:
    """Return whether a name ends like that of a host."""
    return _PRIVATE_HOST.fullmatch(name) is not None


def is_plain_folder(path: str) -> bool:
    """Return whether each part of a path consists of common words, or is what folders are called."""
    return all(map(_is_plain_part, path.split("/")))


def _is_plain_part(part: str) -> bool:
    name = part.removeprefix(".")
    if part in (".", "*", "**") or name in _FOLDERS:
        return True
    if "." in name or "*" in name or not name[:1].isalpha():
        return False
    pieces = _NAME_PIECE.findall(name)
    return "".join(pieces) == name.replace("-", "").replace("_", "") and all(
        piece.lower() in _FOLDERS
        or (piece.islower() and is_common_word(piece))
        or (piece.isdigit() and len(piece) < 3)
        for piece in pieces
    )


def looks_like_host(segment: str, *, is_whole: bool) -> bool:
    """Return whether the first name of a path is `host.example` rather than a file or folder."""
    if _HOST.fullmatch(segment) is None:
        return False
    return not is_whole or segment.rsplit(".", 1)[1] not in _EXTENSIONS
