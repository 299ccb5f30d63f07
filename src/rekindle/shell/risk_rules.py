"""What single programs can destroy: for each the arguments with which it does.

A rule says why a person should be asked, or None. It sees the arguments as far as they are known;
`unknown` stands for what only the shell will know, and counts as the worst that could stand there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .parser import Word


class Arguments(NamedTuple):
    """The arguments of a program, and which paths it may write to."""

    words: tuple[Word, ...]
    is_inside: Callable[[Word], bool]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @property
    def has_unknown(self) -> bool:
        return any(not word.known for word in self.words)

    @property
    def operands(self) -> tuple[Word, ...]:
        """What is not an option."""
        texts = self.texts
        end = texts.index("--") if "--" in texts else len(texts)
        before = [w for w in self.words[:end] if not (w.text.startswith("-") and w.text != "-")]
        return (*before, *self.words[end + 1 :])

    def has(self, letters: str, *names: str) -> bool:
        """Is one of these one-letter options given, or a long one (or a beginning of it)?"""
        for text in self.texts:
            if text == "--":
                return False
            if text.startswith("--"):
                given = text.partition("=")[0]
                if any(name.startswith(given) and len(given) > 3 for name in names):
                    return True
            elif text.startswith("-") and any(letter in text[1:] for letter in letters):
                return True
        return False

    def commands(self, valued: Sequence[str] = ()) -> tuple[str, ...]:
        """The subcommands: operands, less the values of options that take one."""
        found: list[str] = []
        texts = iter(self.texts)
        for text in texts:
            if text in valued:
                next(texts, None)
            elif not text.startswith("-"):
                found.append(text)
        return tuple(found)


Rule = Callable[[Arguments], str | None]


def _names(text: str) -> list[str]:
    return text.split()


def _always(reason: str) -> Rule:
    return lambda given: reason


def _remove(given: Arguments) -> str | None:
    if given.has("rR", "--recursive"):
        return "deletes folders with all that is in them"
    if given.has_unknown:
        return "deletes files that are not known beforehand"
    return _outside(given.operands, given, "deletes files outside the allowed folders")


def _outside(words: Sequence[Word], given: Arguments, reason: str) -> str | None:
    return None if all(given.is_inside(word) for word in words) else reason


def _writes(given: Arguments) -> str | None:
    return _outside(given.operands, given, "writes outside the allowed folders")


def _copies(given: Arguments) -> str | None:
    """The last operand is written, or the folder of -t; a `mv` takes its sources away too."""
    targets = list(given.operands[-1:]) if len(given.operands) > 1 else []
    texts = given.texts
    for number, text in enumerate(texts[:-1]):
        if text in ("-t", "--target-directory"):
            targets.append(given.words[number + 1])
    if any(text.startswith(("--target-directory=", "-t/")) for text in texts):
        return "writes into another folder"
    if "--delete" in texts or any(text.startswith("--delete-") for text in texts):
        return "deletes what the source does not have"
    return _outside(targets, given, "writes outside the allowed folders")


def _moves(given: Arguments) -> str | None:
    return _copies(given) or _writes(given)


def _modes(given: Arguments) -> str | None:
    if given.has("R", "--recursive"):
        return "changes permissions or owners of whole folders"
    operands = given.operands
    first = operands[0].text if operands else ""
    if re.fullmatch(r"0?[4-7]\d{3}|[ugoa]*\+[rwx]*s[rwxt]*", first):
        return "lets a program run as its owner"
    return _outside(operands[1:], given, "changes permissions outside the allowed folders")


def _copies_blocks(given: Arguments) -> str | None:
    targets = [text[3:] for text in given.texts if text.startswith("of=")]
    if given.has_unknown or any(target != "/dev/null" for target in targets):
        return "overwrites a file or a device"
    return None


def _overwrites(given: Arguments, references: Sequence[str]) -> bool:
    names = ("--force", "--force-with-lease", "--delete", "--mirror", "--prune")
    return given.has("fd", *names) or any(one.startswith(("+", ":")) for one in references)


def _git(given: Arguments) -> str | None:
    settings = [t for o, t in zip(given.texts, given.texts[1:], strict=False) if o == "-c"]
    if any(
        re.match(r"(?i)alias\.|.*(command|pager|editor|external|path|helper|program)=", one)
        for one in settings
    ):
        return "lets git run another program"
    names = given.commands(("-C", "-c", "--git-dir", "--work-tree"))
    verb, rest = (names[0], names[1:]) if names else ("", ())
    if given.words and not given.words[0].known:
        return "runs a git command that is not known beforehand"
    unknown = given.has_unknown
    checks: dict[str, tuple[bool, str]] = {
        "push": (
            unknown or _overwrites(given, rest),
            "overwrites or deletes what others have pushed",
        ),
        "reset": (
            unknown or given.has("", "--hard", "--merge", "--keep"),
            "throws away changes that are not committed",
        ),
        "clean": (not given.has("n", "--dry-run"), "deletes files that git does not know"),
        "checkout": (
            given.has("f", "--force") or "--" in given.texts or "." in rest,
            "throws away changes that are not committed",
        ),
        "switch": (
            given.has("fC", "--force", "--discard-changes", "--force-create"),
            "throws away changes that are not committed",
        ),
        "restore": (
            not given.has("S", "--staged") or given.has("W", "--worktree"),
            "throws away changes that are not committed",
        ),
        "branch": (
            given.has("D") or (given.has("d", "--delete") and given.has("f", "--force")),
            "deletes a branch",
        ),
        "tag": (given.has("df", "--delete", "--force"), "deletes or moves a tag"),
        "stash": (rest[:1] in (("drop",), ("clear",)), "throws away stashed changes"),
        "reflog": (rest[:1] in (("expire",), ("delete",)), "deletes the way back to old commits"),
        "worktree": (rest[:1] == ("remove",), "deletes a working tree"),
        "remote": (rest[:1] in (("remove",), ("rm",)), "forgets a remote"),
        "gc": (any(t.startswith("--prune") for t in given.texts), "deletes old commits"),
        "rm": (given.has("rf", "--force"), "deletes files"),
        "update-ref": (given.has("d"), "deletes a reference"),
        "filter-branch": (True, "rewrites history"),
        "filter-repo": (True, "rewrites history"),
    }
    applies, reason = checks.get(verb, (False, ""))
    return reason if applies else None


def _verbs(reason: str, *verbs: str) -> Rule:
    """Dangerous with one of these words among the subcommands (the first three)."""

    def rule(given: Arguments) -> str | None:
        if any(not word.known for word in given.words[:1]):
            return reason
        return reason if any(name in verbs for name in given.commands()[:3]) else None

    return rule


def _containers(given: Arguments) -> str | None:
    names = given.commands(("-f", "--file", "-p", "--project-name", "-H", "--context"))[:3]
    if any(one in ("rm", "rmi", "prune", "kill", "remove") for one in names):
        return "deletes or ends containers, images or volumes"
    if "down" in names and given.has("v", "--volumes", "--rmi"):
        return "deletes volumes or images"
    wide = any(t.startswith(("--privileged", "--pid=host", "/:")) for t in given.texts)
    return "gives a container the whole machine" if "run" in names and wide else None


def _services(given: Arguments) -> str | None:
    calm = ("status", "show", "cat", "help", "list-units", "list-unit-files", "list-timers")
    names = given.commands()
    is_calm = not names or names[0] in calm or names[0].startswith("is-") or names[-1] == "status"
    return None if is_calm else "changes services of this machine"


def _packages(given: Arguments) -> str | None:
    verbs = ("remove", "purge", "autoremove", "erase", "uninstall", "unpublish", "del", "rm", "un")
    names = given.commands()[:3]
    if any(name in verbs for name in names):
        return "removes packages"
    return "publishes a package" if "publish" in names or "upload" in names else None


def _low_level_packages(given: Arguments) -> str | None:
    removes = given.has("rPRe", "--remove", "--purge", "--erase")
    return "removes packages" if removes else None


def _clouds(given: Arguments) -> str | None:
    for name in given.commands()[:4]:
        if re.match(r"(rm|rb|delete|destroy|terminate|drain|uninstall|remove|purge)(-|$)", name):
            return "deletes things outside this machine"
    return None


def _scheduler(given: Arguments) -> str | None:
    return None if given.has("l") else "changes scheduled tasks of this machine"


def _stream_editor(given: Arguments) -> str | None:
    if not given.has("i", "--in-place"):
        return None
    files = given.operands[0 if given.has("ef", "--expression", "--file") else 1 :]
    return _outside(files, given, "changes files outside the allowed folders")


def _download(given: Arguments) -> str | None:
    targets: list[Word] = []
    for number, text in enumerate(given.texts):
        if text in ("-o", "-O", "--output", "--output-document", "--output-dir", "-P"):
            targets += given.words[number + 1 : number + 2]
        elif text.startswith(("--output=", "--output-document=")):
            targets.append(Word(text.partition("=")[2], given.words[number].known))
    files = [w for w in targets if w.text != "-" and "://" not in w.text]
    return _outside(files, given, "writes outside the allowed folders")


def _archive(given: Arguments) -> str | None:
    targets = [
        word
        for text, word in zip(given.texts, given.words[1:], strict=False)
        if text in ("-C", "-d", "--directory")
    ]
    return _outside(targets, given, "unpacks outside the allowed folders")


_KILLS = _always("ends processes")
_POWER = _always("stops or restarts this machine")
_DISKS = _always("changes disks or file systems")
_USERS = _always("changes users or their rights")
_NETWORK = _always("changes the network of this machine")

RULES: dict[str, Rule] = {
    **dict.fromkeys(("rm", "unlink", "trash"), _remove),
    **dict.fromkeys(("shred", "srm", "wipe"), _always("deletes files beyond recovery")),
    **dict.fromkeys(("touch", "mkdir", "rmdir", "tee", "truncate", "mktemp"), _writes),
    **dict.fromkeys(("cp", "ln", "install", "rsync", "scp"), _copies),
    "mv": _moves,
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "chattr"), _modes),
    "dd": _copies_blocks,
    **dict.fromkeys(
        _names(
            "fdisk parted sfdisk cfdisk gdisk sgdisk wipefs mke2fs mkswap swapoff swapon mount umount "
            "losetup cryptsetup lvremove vgremove pvremove blkdiscard hdparm zpool zfs"
        ),
        _DISKS,
    ),
    **dict.fromkeys(("kill", "pkill", "killall", "killall5", "skill", "xkill"), _KILLS),
    "fuser": lambda given: "ends processes" if given.has("k", "--kill") else None,
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff", "init", "telinit"), _POWER),
    **dict.fromkeys(
        ("systemctl", "service", "launchctl", "rc-service", "supervisorctl"), _services
    ),
    **dict.fromkeys(
        _names("useradd userdel usermod adduser deluser groupadd groupdel passwd chpasswd visudo"),
        _USERS,
    ),
    **dict.fromkeys(("iptables", "ip6tables", "nft", "ufw", "firewall-cmd", "ifconfig"), _NETWORK),
    **dict.fromkeys(("insmod", "rmmod", "modprobe", "sysctl"), _always("changes the kernel")),
    **dict.fromkeys(("sudo", "doas", "su", "pkexec", "runuser"), _always("runs as another user")),
    **dict.fromkeys(("chroot", "nsenter"), _always("leaves the place it runs in")),
    **dict.fromkeys(("crontab", "at", "batch", "atrm"), _scheduler),
    "git": _git,
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose"), _containers),
    **dict.fromkeys(
        _names(
            "apt apt-get aptitude yum dnf zypper apk brew snap flatpak port pip pip3 pipx uv conda "
            "mamba npm pnpm yarn bun cargo gem poetry pdm composer choco winget twine nix-env"
        ),
        _packages,
    ),
    **dict.fromkeys(("dpkg", "rpm", "pacman"), _low_level_packages),
    **dict.fromkeys(
        _names(
            "kubectl oc helm aws gcloud az gh glab doctl flyctl heroku vercel rclone gsutil s3cmd"
        ),
        _clouds,
    ),
    **dict.fromkeys(
        ("terraform", "tofu", "pulumi"),
        _verbs("changes things outside this machine", "destroy", "apply", "up"),
    ),
    **dict.fromkeys(("dropdb", "dropuser"), _always("deletes a database or a user of it")),
    "redis-cli": _verbs("deletes data", "flushall", "flushdb", "FLUSHALL", "FLUSHDB", "del", "DEL"),
    "tmux": _verbs("ends sessions, or types into them", "kill-server", "kill-session", "send-keys"),
    "sed": _stream_editor,
    **dict.fromkeys(("curl", "wget"), _download),
    **dict.fromkeys(("tar", "unzip", "bsdtar", "7z"), _archive),
}
# By the beginning of the name, as in mkfs.ext4.
PREFIXES: dict[str, Rule] = {"mkfs": _DISKS, "fsck": _DISKS}

DATABASES = frozenset(
    _names(
        "psql mysql mariadb sqlite3 sqlite duckdb sqlcmd clickhouse-client cockroach mongosh mongo"
    )
)
SQL_LOSS = re.compile(
    r"\b(drop|truncate)\s+(table|database|schema|index|view|materialized|user|role|column|if)\b"
    r"|\btruncate\s+\w|\bdelete\s+from\s+[\w.\"`]+\s*(;|$|\")|\balter\s+table\b[^;]*\bdrop\b"
    r"|\bdropDatabase\b|\.drop\(|\.deleteMany\(\s*\{\s*\}",
    re.IGNORECASE,
)
CODE_LOSS = re.compile(
    r"rmtree|os\.(remove|unlink|rmdir|removedirs|kill|system|exec\w*|spawn\w*|popen)|\.unlink\(|subprocess"
    r"|fs\.(rm|unlink|rmdir)|(rm|rmdir|unlink)Sync|child_process|FileUtils\.rm|\bunlink\b|\bsystem\s*\(|\bsystem\s+[\"']|`|\bexec\b"
)
# What only its owner should read; a command that shows it puts it into the conversation.
SECRETS = re.compile(
    r"/proc/[^/]+/environ|/etc/(g?shadow|sudoers)|\.ssh/(id_|.*_rsa|.*_ed25519)|\.aws/credentials"
    r"|\.netrc|\.gnupg/|\.pgpass|\.docker/config\.json|\.kube/config|\.git-credentials"
)
