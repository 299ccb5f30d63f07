"""Risk rules: for each program, the arguments that make it destructive.

A rule returns why a person should be asked, or None. It sees the arguments as far as they are known;
an unknown word counts as the worst possible value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .parser import ShellWord


class CommandArguments(NamedTuple):
    """The arguments of a program, with a check of the paths it may write to."""

    words: tuple[ShellWord, ...]
    is_inside: Callable[[ShellWord], bool]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @property
    def has_unknown(self) -> bool:
        return any(not word.known for word in self.words)

    @property
    def operands(self) -> tuple[ShellWord, ...]:
        """The arguments that are not options."""
        texts = self.texts
        end = texts.index("--") if "--" in texts else len(texts)
        before = [w for w in self.words[:end] if not (w.text.startswith("-") and w.text != "-")]
        return (*before, *self.words[end + 1 :])

    def has_option(self, letters: str, *names: str) -> bool:
        """Return whether one of these short options, or a long one (or its prefix), is given."""
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

    def list_subcommands(self, value_options: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the subcommands: the operands without the values of options that take one."""
        found: list[str] = []
        texts = iter(self.texts)
        for text in texts:
            if text in value_options:
                next(texts, None)
            elif not text.startswith("-"):
                found.append(text)
        return tuple(found)


RiskRule = Callable[[CommandArguments], str | None]


def _split_names(text: str) -> list[str]:
    return text.split()


def _make_constant_rule(reason: str) -> RiskRule:
    return lambda given: reason


def _check_removal(given: CommandArguments) -> str | None:
    if given.has_option("rR", "--recursive"):
        return "deletes folders and their contents"
    if given.has_unknown:
        return "deletes files that are not known in advance"
    return _check_outside(given.operands, given, "deletes files outside the allowed folders")


def _check_outside(words: Sequence[ShellWord], given: CommandArguments, reason: str) -> str | None:
    return None if all(given.is_inside(word) for word in words) else reason


def _check_write(given: CommandArguments) -> str | None:
    return _check_outside(given.operands, given, "writes outside the allowed folders")


def _check_copy(given: CommandArguments) -> str | None:
    """Check the last operand, or the folder of -t, which is written."""
    targets = list(given.operands[-1:]) if len(given.operands) > 1 else []
    texts = given.texts
    for number, text in enumerate(texts[:-1]):
        if text in ("-t", "--target-directory"):
            targets.append(given.words[number + 1])
    if any(text.startswith(("--target-directory=", "-t/")) for text in texts):
        return "writes into another folder"
    if "--delete" in texts or any(text.startswith("--delete-") for text in texts):
        return "deletes files that the source does not have"
    return _check_outside(targets, given, "writes outside the allowed folders")


def _check_move(given: CommandArguments) -> str | None:
    return _check_copy(given) or _check_write(given)


def _check_permissions(given: CommandArguments) -> str | None:
    if given.has_option("R", "--recursive"):
        return "changes permissions or owners recursively"
    operands = given.operands
    first = operands[0].text if operands else ""
    if re.fullmatch(r"0?[4-7]\d{3}|[ugoa]*\+[rwx]*s[rwxt]*", first):
        return "makes a program run as its owner (setuid)"
    return _check_outside(operands[1:], given, "changes permissions outside the allowed folders")


def _check_dd(given: CommandArguments) -> str | None:
    targets = [text[3:] for text in given.texts if text.startswith("of=")]
    if given.has_unknown or any(target != "/dev/null" for target in targets):
        return "overwrites a file or a device"
    return None


def _is_forced_push(given: CommandArguments, references: Sequence[str]) -> bool:
    names = ("--force", "--force-with-lease", "--delete", "--mirror", "--prune")
    return given.has_option("fd", *names) or any(one.startswith(("+", ":")) for one in references)


def _check_git(given: CommandArguments) -> str | None:
    settings = [t for o, t in zip(given.texts, given.texts[1:], strict=False) if o == "-c"]
    if any(
        re.match(r"(?i)alias\.|.*(command|pager|editor|external|path|helper|program)=", one)
        for one in settings
    ):
        return "lets git run another program"
    names = given.list_subcommands(("-C", "-c", "--git-dir", "--work-tree"))
    subcommand, rest = (names[0], names[1:]) if names else ("", ())
    if given.words and not given.words[0].known:
        return "runs a git command that is not known in advance"
    unknown = given.has_unknown
    checks: dict[str, tuple[bool, str]] = {
        "push": (
            unknown or _is_forced_push(given, rest),
            "overwrites or deletes pushed commits",
        ),
        "reset": (
            unknown or given.has_option("", "--hard", "--merge", "--keep"),
            "discards uncommitted changes",
        ),
        "clean": (not given.has_option("n", "--dry-run"), "deletes untracked files"),
        "checkout": (
            given.has_option("f", "--force") or "--" in given.texts or "." in rest,
            "discards uncommitted changes",
        ),
        "switch": (
            given.has_option("fC", "--force", "--discard-changes", "--force-create"),
            "discards uncommitted changes",
        ),
        "restore": (
            not given.has_option("S", "--staged") or given.has_option("W", "--worktree"),
            "discards uncommitted changes",
        ),
        "branch": (
            given.has_option("D")
            or (given.has_option("d", "--delete") and given.has_option("f", "--force")),
            "deletes a branch",
        ),
        "tag": (given.has_option("df", "--delete", "--force"), "deletes or moves a tag"),
        "stash": (rest[:1] in (("drop",), ("clear",)), "discards stashed changes"),
        "reflog": (rest[:1] in (("expire",), ("delete",)), "deletes references to old commits"),
        "worktree": (rest[:1] == ("remove",), "deletes a working tree"),
        "remote": (rest[:1] in (("remove",), ("rm",)), "removes a remote"),
        "gc": (any(t.startswith("--prune") for t in given.texts), "deletes old commits"),
        "rm": (given.has_option("rf", "--force"), "deletes files"),
        "update-ref": (given.has_option("d"), "deletes a reference"),
        "filter-branch": (True, "rewrites history"),
        "filter-repo": (True, "rewrites history"),
    }
    applies, reason = checks.get(subcommand, (False, ""))
    return reason if applies else None


def _make_subcommand_rule(reason: str, *verbs: str) -> RiskRule:
    """Make a rule that matches one of these words among the first three subcommands."""

    def rule(given: CommandArguments) -> str | None:
        if any(not word.known for word in given.words[:1]):
            return reason
        return reason if any(name in verbs for name in given.list_subcommands()[:3]) else None

    return rule


def _check_containers(given: CommandArguments) -> str | None:
    names = given.list_subcommands(("-f", "--file", "-p", "--project-name", "-H", "--context"))[:3]
    if any(one in ("rm", "rmi", "prune", "kill", "remove") for one in names):
        return "deletes or stops containers, images or volumes"
    if "down" in names and given.has_option("v", "--volumes", "--rmi"):
        return "deletes volumes or images"
    wide = any(t.startswith(("--privileged", "--pid=host", "/:")) for t in given.texts)
    return "gives a container access to the whole machine" if "run" in names and wide else None


def _check_services(given: CommandArguments) -> str | None:
    read_only = ("status", "show", "cat", "help", "list-units", "list-unit-files", "list-timers")
    names = given.list_subcommands()
    is_read_only = (
        not names or names[0] in read_only or names[0].startswith("is-") or names[-1] == "status"
    )
    return None if is_read_only else "changes this machine's services"


def _check_packages(given: CommandArguments) -> str | None:
    verbs = ("remove", "purge", "autoremove", "erase", "uninstall", "unpublish", "del", "rm", "un")
    names = given.list_subcommands()[:3]
    if any(name in verbs for name in names):
        return "removes packages"
    return "publishes a package" if "publish" in names or "upload" in names else None


def _check_package_files(given: CommandArguments) -> str | None:
    removes = given.has_option("rPRe", "--remove", "--purge", "--erase")
    return "removes packages" if removes else None


def _check_cloud(given: CommandArguments) -> str | None:
    for name in given.list_subcommands()[:4]:
        if re.match(r"(rm|rb|delete|destroy|terminate|drain|uninstall|remove|purge)(-|$)", name):
            return "deletes remote resources"
    return None


def _check_scheduler(given: CommandArguments) -> str | None:
    return None if given.has_option("l") else "changes this machine's scheduled tasks"


def _check_sed(given: CommandArguments) -> str | None:
    if not given.has_option("i", "--in-place"):
        return None
    files = given.operands[0 if given.has_option("ef", "--expression", "--file") else 1 :]
    return _check_outside(files, given, "changes files outside the allowed folders")


def _check_download(given: CommandArguments) -> str | None:
    targets: list[ShellWord] = []
    for number, text in enumerate(given.texts):
        if text in ("-o", "-O", "--output", "--output-document", "--output-dir", "-P"):
            targets += given.words[number + 1 : number + 2]
        elif text.startswith(("--output=", "--output-document=")):
            targets.append(ShellWord(text.partition("=")[2], given.words[number].known))
    files = [w for w in targets if w.text != "-" and "://" not in w.text]
    return _check_outside(files, given, "writes outside the allowed folders")


def _check_archive(given: CommandArguments) -> str | None:
    targets = [
        word
        for text, word in zip(given.texts, given.words[1:], strict=False)
        if text in ("-C", "-d", "--directory")
    ]
    return _check_outside(targets, given, "unpacks outside the allowed folders")


_KILL_RULE = _make_constant_rule("kills processes")
_POWER_RULE = _make_constant_rule("stops or restarts this machine")
_DISK_RULE = _make_constant_rule("changes disks or file systems")
_USER_RULE = _make_constant_rule("changes users or their rights")
_NETWORK_RULE = _make_constant_rule("changes this machine's network")

RISK_RULES: dict[str, RiskRule] = {
    **dict.fromkeys(("rm", "unlink", "trash"), _check_removal),
    **dict.fromkeys(("shred", "srm", "wipe"), _make_constant_rule("deletes files beyond recovery")),
    **dict.fromkeys(("touch", "mkdir", "rmdir", "tee", "truncate", "mktemp"), _check_write),
    **dict.fromkeys(("cp", "ln", "install", "rsync", "scp"), _check_copy),
    "mv": _check_move,
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "chattr"), _check_permissions),
    "dd": _check_dd,
    **dict.fromkeys(
        _split_names(
            "fdisk parted sfdisk cfdisk gdisk sgdisk wipefs mke2fs mkswap swapoff swapon mount umount "
            "losetup cryptsetup lvremove vgremove pvremove blkdiscard hdparm zpool zfs"
        ),
        _DISK_RULE,
    ),
    **dict.fromkeys(("kill", "pkill", "killall", "killall5", "skill", "xkill"), _KILL_RULE),
    "fuser": lambda given: "kills processes" if given.has_option("k", "--kill") else None,
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff", "init", "telinit"), _POWER_RULE),
    **dict.fromkeys(
        ("systemctl", "service", "launchctl", "rc-service", "supervisorctl"), _check_services
    ),
    **dict.fromkeys(
        _split_names(
            "useradd userdel usermod adduser deluser groupadd groupdel passwd chpasswd visudo"
        ),
        _USER_RULE,
    ),
    **dict.fromkeys(
        ("iptables", "ip6tables", "nft", "ufw", "firewall-cmd", "ifconfig"), _NETWORK_RULE
    ),
    **dict.fromkeys(
        ("insmod", "rmmod", "modprobe", "sysctl"), _make_constant_rule("changes the kernel")
    ),
    **dict.fromkeys(
        ("sudo", "doas", "su", "pkexec", "runuser"), _make_constant_rule("runs as another user")
    ),
    **dict.fromkeys(("chroot", "nsenter"), _make_constant_rule("leaves its isolated environment")),
    **dict.fromkeys(("crontab", "at", "batch", "atrm"), _check_scheduler),
    "git": _check_git,
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose"), _check_containers),
    **dict.fromkeys(
        _split_names(
            "apt apt-get aptitude yum dnf zypper apk brew snap flatpak port pip pip3 pipx uv conda "
            "mamba npm pnpm yarn bun cargo gem poetry pdm composer choco winget twine nix-env"
        ),
        _check_packages,
    ),
    **dict.fromkeys(("dpkg", "rpm", "pacman"), _check_package_files),
    **dict.fromkeys(
        _split_names(
            "kubectl oc helm aws gcloud az gh glab doctl flyctl heroku vercel rclone gsutil s3cmd"
        ),
        _check_cloud,
    ),
    **dict.fromkeys(
        ("terraform", "tofu", "pulumi"),
        _make_subcommand_rule("changes remote resources", "destroy", "apply", "up"),
    ),
    **dict.fromkeys(
        ("dropdb", "dropuser"), _make_constant_rule("deletes a database or one of its users")
    ),
    "redis-cli": _make_subcommand_rule(
        "deletes data", "flushall", "flushdb", "FLUSHALL", "FLUSHDB", "del", "DEL"
    ),
    "tmux": _make_subcommand_rule(
        "kills sessions or types into them", "kill-server", "kill-session", "send-keys"
    ),
    "sed": _check_sed,
    **dict.fromkeys(("curl", "wget"), _check_download),
    **dict.fromkeys(("tar", "unzip", "bsdtar", "7z"), _check_archive),
}
# By name prefix, as in mkfs.ext4.
PREFIX_RULES: dict[str, RiskRule] = {"mkfs": _DISK_RULE, "fsck": _DISK_RULE}

DATABASE_CLIENTS = frozenset(
    _split_names(
        "psql mysql mariadb sqlite3 sqlite duckdb sqlcmd clickhouse-client cockroach mongosh mongo"
    )
)
DESTRUCTIVE_SQL = re.compile(
    r"\b(drop|truncate)\s+(table|database|schema|index|view|materialized|user|role|column|if)\b"
    r"|\btruncate\s+\w|\bdelete\s+from\s+[\w.\"`]+\s*(;|$|\")|\balter\s+table\b[^;]*\bdrop\b"
    r"|\bdropDatabase\b|\.drop\(|\.deleteMany\(\s*\{\s*\}",
    re.IGNORECASE,
)
DESTRUCTIVE_CODE = re.compile(
    r"rmtree|os\.(remove|unlink|rmdir|removedirs|kill|system|exec\w*|spawn\w*|popen)|\.unlink\(|subprocess"
    r"|fs\.(rm|unlink|rmdir)|(rm|rmdir|unlink)Sync|child_process|FileUtils\.rm|\bunlink\b|\bsystem\s*\(|\bsystem\s+[\"']|`|\bexec\b"
)
# Secret files; a command that prints one puts it into the conversation.
SECRET_PATHS = re.compile(
    r"/proc/[^/]{1,20}/environ|/etc/(g?shadow|sudoers)|\.ssh/(id_|.{0,200}_rsa|.{0,200}_ed25519)|\.aws/credentials"
    r"|\.netrc|\.gnupg/|\.pgpass|\.docker/config\.json|\.kube/config|\.git-credentials"
)
