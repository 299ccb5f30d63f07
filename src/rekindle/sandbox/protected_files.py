"""The files that hold secrets, and those that run code when somebody works in their folder."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from functools import cache

# Programs and libraries below the home folder. Everything else there is out of sight.
TOOLCHAINS = (
    *(".cargo/bin", ".rustup", ".pyenv", ".nvm", ".volta", ".asdf", ".rbenv", ".sdkman", ".jenv"),
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/mise", ".local/share/uv"),
    *(".local/share/pipx", ".local/share/pnpm", ".local/share/fnm", ".local/share/virtualenvs"),
    *(
        ".deno/bin",
        ".bun/bin",
        ".bun/install/global",
        ".dotnet",
        ".ghcup",
        ".nix-profile",
        ".juliaup",
    ),
    *(".nodenv", ".goenv", ".opam", ".elan", ".foundry/bin", "go/bin", "go/pkg/mod", ".conda/envs"),
    *(
        ".krew/bin",
        ".poetry/bin",
        ".rye/shims",
        ".npm-global",
        ".yarn/bin",
        "miniconda3",
        "anaconda3",
    ),
)
# In a workspace: read by other programs, which then run what they say.
COMMON_LAUNCH_FILES = (
    *(".envrc", ".mcp.json", ".claude", ".codex", ".cursor", ".vscode", ".idea", ".devcontainer"),
)
LAUNCH_FILES = (
    *COMMON_LAUNCH_FILES,
    *(
        ".gemini",
        ".opencode",
        ".windsurf",
        ".zed",
        ".rekindle",
        ".husky",
        ".githooks",
        ".mise.toml",
    ),
    *(".autoenv", ".exrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", ".gdbinit", ".lldbinit"),
)
GIT_LAUNCH_FILES = ("hooks", "config", "config.worktree", "commondir", "modules", "worktrees")
# In a home folder: read by every shell, and by programs that start with the session.
SHELL_FILES = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".inputrc"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".cshrc", ".tcshrc", ".login"),
    *(".xinitrc", ".xprofile", ".xsession", ".pam_environment", ".gitconfig", ".vimrc", ".npmrc"),
)
SECRET_NAMES = re.compile(
    r"(?i)\.env(?:rc)?|\.env\..{1,100}|.{1,100}\.env|\.?netrc|_netrc|\.pypirc|\.pgpass|\.my\.cnf|\.htpasswd"
    r"|\.git-credentials|\.vault-token|\.dockercfg|\.s3cfg|\.boto|\.terraformrc|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?"
    r"|.{1,200}\.(?:p12|pfx|jks|keystore|kdbx?|ppk|agekey)|credentials(?:\.json|\.csv|\.toml)?"
    r"|secrets?\.(?:json|ya?ml|toml|env|ini)|service[-_]account.{0,60}\.json|client_secret.{0,100}\.json"
    r"|\.(?:ssh|gnupg|aws|azure|kube|docker|gcloud|password-store|mozilla|thunderbird)"
)
EXAMPLE_NAMES = re.compile(r"(?i).{1,200}\.(?:example|sample|template|dist|defaults?|tmpl|pub)")
# Files of these names are ordinary unless they contain this.
_TELLTALES = (
    (
        re.compile(r"\.npmrc|\.yarnrc(?:\.yml)?|\.piprc|pip\.conf"),
        re.compile(rb"(?i)_auth|_password|token|://[^/\s]+@"),
    ),
    (re.compile(r"(?i).{1,200}\.(?:pem|key)"), re.compile(rb"PRIVATE KEY")),
)
_MAX_READ = 64 * 1024
_MAX_SCANNED, _MAX_DEPTH = 4000, 3
_SKIPPED = frozenset(
    ("node_modules", ".git", ".venv", "venv", "target", "__pycache__", ".tox", "dist")
)


def is_secret_file(path: str) -> bool:
    """Return whether a file or folder holds credentials, by its name or, if that is common, content."""
    name = os.path.basename(path)
    if EXAMPLE_NAMES.fullmatch(name) or name == ".envrc":
        return False
    if SECRET_NAMES.fullmatch(name):
        return True
    return any(
        names.fullmatch(name) and _contains_pattern(path, text) for names, text in _TELLTALES
    )


def _contains_pattern(path: str, pattern: re.Pattern[bytes]) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        return (
            stat.S_ISREG(os.fstat(fd).st_mode) and pattern.search(file.read(_MAX_READ)) is not None
        )


def find_secret_files(root: str) -> list[str]:
    """Return the credentials in a workspace, near its top; links are left out."""
    found: list[str] = []
    folders, scanned = [(root, 0)], 0
    while folders and scanned < _MAX_SCANNED:
        folder, depth = folders.pop(0)
        for entry in _scan_folder(folder):
            scanned += 1
            if entry.is_symlink():
                continue
            if is_secret_file(entry.path):
                found.append(entry.path)
            elif depth < _MAX_DEPTH and entry.name not in _SKIPPED and entry.is_dir():
                folders.append((entry.path, depth + 1))
    return found


def _scan_folder(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def is_launch_file(path: str, roots: tuple[str, ...]) -> bool:
    """Return whether a file below one of the folders runs code later: hooks, editor tasks, …"""
    for root in roots:
        inside = root.rstrip("/") + "/"
        if path.startswith(inside):
            parts = path[len(inside) :].split("/")
            if any(part in LAUNCH_FILES for part in parts) or parts[-1] in SHELL_FILES:
                return True
            if ".git" in parts:
                below = parts[parts.index(".git") + 1 :]
                return not below or below[0] in GIT_LAUNCH_FILES
    return False


@cache
def find_private_files(folder: str = "/etc") -> tuple[str, ...]:
    """Return what others cannot read below a folder but we can, as root does: password hashes, keys."""
    found: list[str] = []
    folders = [folder]
    while folders:
        for entry in _scan_folder(folders.pop()):
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:
                continue
            is_folder = stat.S_ISDIR(mode)
            if is_folder and mode & 0o005 == 0o005:
                folders.append(entry.path)
            elif (is_folder or (stat.S_ISREG(mode) and not mode & 0o004)) and os.access(
                entry.path, os.R_OK
            ):
                found.append(entry.path)
    return tuple(found)
