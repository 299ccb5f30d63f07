"""Risk rules: for each program, the arguments that make it destructive.

A rule returns why a person should be asked, or None. It sees the arguments as far as they are known;
an unknown word counts as the worst possible value. This is the only list of side effects: approval,
mining and examples all apply it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from .effects import GIT_VALUES, CommandArguments, CommandEffect, EffectLevel
from .external_rules import find_external_effect
from .parser import ShellWord
from .wrappers import split_names

RiskRule = Callable[[CommandArguments], str | None]


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


_LOSES_CHANGES = "discards uncommitted changes"
# By subcommand: the short and long options that make it destructive, and why.
_GIT_OPTIONS: dict[str, tuple[str, str, str]] = {
    "push": (
        "fd",
        "--force --force-with-lease --delete --mirror --prune",
        "overwrites or deletes pushed commits",
    ),
    "reset": ("", "--hard --merge --keep", _LOSES_CHANGES),
    "checkout": ("f", "--force", _LOSES_CHANGES),
    "switch": ("fC", "--force --discard-changes --force-create", _LOSES_CHANGES),
    "branch": ("D", "", "deletes a branch"),
    "tag": ("df", "--delete --force", "deletes or moves a tag"),
    "gc": ("", "--prune", "deletes old commits"),
    "rm": ("rf", "--force", "deletes files"),
    "update-ref": ("d", "", "deletes a reference"),
}
# By subcommand: the first operands that make it destructive, and why.
_GIT_OPERANDS: dict[str, tuple[str, str]] = {
    "stash": ("drop clear", "discards stashed changes"),
    "reflog": ("expire delete", "deletes references to old commits"),
    "worktree": ("remove", "deletes a working tree"),
    "remote": ("remove rm", "removes a remote"),
}


def _check_git(given: CommandArguments) -> str | None:
    settings = [t for o, t in zip(given.texts, given.texts[1:], strict=False) if o == "-c"]
    if any(
        re.match(r"(?i)alias\.|.*(command|pager|editor|external|path|helper|program)=", one)
        for one in settings
    ):
        return "lets git run another program"
    if given.words and not given.words[0].known:
        return "runs a git command that is not known in advance"
    subcommand, *rest = given.list_subcommands(GIT_VALUES) or ("",)
    if subcommand in ("filter-branch", "filter-repo"):
        return "rewrites history"
    if subcommand == "clean":
        return None if given.has_option("n", "--dry-run") else "deletes untracked files"
    if subcommand == "restore":
        only_staged = given.has_option("S", "--staged") and not given.has_option("W", "--worktree")
        return None if only_staged else _LOSES_CHANGES
    operands, reason = _GIT_OPERANDS.get(subcommand, ("", ""))
    if rest and rest[0] in operands.split():
        return reason
    letters, options, reason = _GIT_OPTIONS.get(subcommand, ("", "", ""))
    applies = given.has_option(letters, *options.split()) or _has_risky_operands(
        subcommand, given, rest
    )
    return reason if reason and applies else None


def _has_risky_operands(subcommand: str, given: CommandArguments, rest: Sequence[str]) -> bool:
    if subcommand == "push":
        return given.has_unknown or any(one.startswith(("+", ":")) for one in rest)
    if subcommand == "branch":
        return given.has_option("d", "--delete") and given.has_option("f", "--force")
    if subcommand == "checkout":
        return "--" in given.texts or "." in rest
    return subcommand == "reset" and given.has_unknown


def _make_subcommand_rule(reason: str, *verbs: str) -> RiskRule:
    """Make a rule that matches one of these words among the first three subcommands."""

    def rule(given: CommandArguments) -> str | None:
        if any(not word.known for word in given.words[:1]):
            return reason
        return (
            reason if any(name.lower() in verbs for name in given.list_subcommands()[:3]) else None
        )

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
        split_names(
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
        split_names(
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
        split_names(
            "apt apt-get aptitude yum dnf zypper apk brew snap flatpak port pip pip3 pipx uv conda "
            "mamba npm pnpm yarn bun cargo gem poetry pdm composer choco winget twine nix-env"
        ),
        _check_packages,
    ),
    **dict.fromkeys(("dpkg", "rpm", "pacman"), _check_package_files),
    **dict.fromkeys(
        split_names(
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
    **dict.fromkeys(
        ("redis-cli", "valkey-cli", "keydb-cli"),
        _make_subcommand_rule("deletes data", "flushall", "flushdb", "del", "unlink"),
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

# Not asked about in the allowed folders, but nothing to teach.
DELETING_PROGRAMS = frozenset(["rm", "unlink", "trash", "rmdir", "truncate"])

DATABASE_CLIENTS = split_names(
    "psql mysql mariadb sqlite3 sqlite duckdb sqlcmd clickhouse-client cockroach mongosh mongo"
)
DESTRUCTIVE_SQL = re.compile(
    r"\b(drop|truncate)\s+(table|database|schema|index|view|materialized|user|role|column|if)\b"
    r"|\btruncate\s+\w|\bdelete\s+from\s+[\w.\"`]+\s*(;|$|\")|\balter\s+table\b[^;]*\bdrop\b"
    r"|\bdropDatabase\b|\.drop\(|\.deleteMany\(\s*\{\s*\}",
    re.IGNORECASE,
)
DELETING_SQL = re.compile(rf"{DESTRUCTIVE_SQL.pattern}|\bdelete\s+from\s", re.IGNORECASE)
DELETING_CODE = re.compile(
    r"rmtree|os\.(remove|unlink|rmdir|removedirs|kill)|\.unlink\(|fs\.(rm|unlink|rmdir)"
    r"|(rm|rmdir|unlink)Sync|FileUtils\.rm|\bunlink\b"
)
DESTRUCTIVE_CODE = re.compile(
    rf"{DELETING_CODE.pattern}|os\.(system|exec\w*|spawn\w*|popen)|subprocess"
    r"|child_process|\bsystem\s*\(|\bsystem\s+[\"']|`|\bexec\b"
)
# Secret files; a command that prints one puts it into the conversation.
SECRET_PATHS = re.compile(
    r"/proc/[^/]{1,20}/environ|/etc/(g?shadow|sudoers)|\.ssh/(id_|.{0,200}_rsa|.{0,200}_ed25519)|\.aws/credentials"
    r"|\.netrc|\.gnupg/|\.pgpass|\.docker/config\.json|\.kube/config|\.git-credentials"
)


def apply_rules(program: str, given: CommandArguments) -> Iterator[CommandEffect]:
    """Yield the effects of a program with these arguments, by its own rules."""
    rule = RISK_RULES.get(program) or next(
        (one for start, one in PREFIX_RULES.items() if program.startswith(start)), None
    )
    if rule and (reason := rule(given)):
        yield CommandEffect(f"{program} {reason}")
    elif program in DELETING_PROGRAMS:
        yield CommandEffect(f"{program} deletes files", EffectLevel.DESTRUCTIVE)
    if reason := find_external_effect(program, given):
        yield CommandEffect(f"{program} {reason}", EffectLevel.EXTERNAL)
