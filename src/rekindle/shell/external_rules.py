"""Commands with effects that others notice: they push, publish, deploy, send or change a server.

They need no approval by themselves, but nobody should repeat them because an example did.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .effects import GIT_VALUES, CommandArguments
from .wrappers import split_names

# By program: the subcommands with an effect on others.
_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    name: split_names(verbs)
    for names, verbs in (
        ("docker podman nerdctl", "push"),
        (
            "kubectl oc",
            "apply create delete scale rollout patch drain replace edit annotate label cordon",
        ),
        ("helm", "install upgrade uninstall rollback push"),
        ("terraform tofu pulumi", "apply destroy import up"),
        ("npm pnpm yarn cargo uv poetry gem twine pdm", "publish upload"),
    )
    for name in split_names(names)
}
# `gh pr create`: what a forge does stands after the thing it does it to.
_FORGE_VERBS = split_names(
    "create merge close reopen comment edit delete review run upload rerun cancel"
)
_CLOUD_CLIENTS = split_names(
    "vercel netlify fly flyctl heroku wrangler serverless sls gcloud aws az doctl"
)
_CLOUD_VERB = re.compile(r"deploy|publish|delete|create|^rm$|^put|^push|^cp$|^sync$|update")
_SENDERS = split_names("sendmail mail mailx mutt scp sftp")
# Scripts and tasks that are named after what they do: `./deploy.sh`, `make release`.
_TASK = re.compile(r"(?:.*/)?(?:[\w-]+[-_:])?(?:deploy|release|publish)(?:[-_:.]\w+)*")
_TASK_WORD = re.compile(r"deploy|release|publish")  # much cheaper
_WRITING_METHODS = frozenset(["POST", "PUT", "DELETE", "PATCH"])


def find_external_effect(program: str, given: CommandArguments) -> str | None:
    """Return what others notice of this command; None if they notice nothing."""
    if program in _SENDERS:
        return "sends something to others"
    names = given.list_subcommands()[:4]
    if program == "git":
        return "publishes commits" if given.list_subcommands(GIT_VALUES)[:1] == ("push",) else None
    is_forge_action = program in ("gh", "glab") and names[1:2] and names[1] in _FORGE_VERBS
    if is_forge_action or any(name in _SUBCOMMANDS.get(program, ()) for name in names[:2]):
        return "changes what others see"
    if program in _CLOUD_CLIENTS and any(_CLOUD_VERB.search(name) for name in names):
        return "changes remote resources"
    if _TASK_WORD.search(" ".join((program, *names))) and any(
        _TASK.fullmatch(name) for name in (program, *names)
    ):
        return "deploys or publishes"
    if program in ("rsync", "rclone") and any(":" in name for name in names):
        return "copies to or from another machine"
    return "sends data to a server" if _is_upload(program, given) else None


def _is_upload(program: str, given: CommandArguments) -> bool:
    texts = given.texts
    if program == "wget":
        return any(text.startswith(("--post", "--body", "--method")) for text in texts)
    if program != "curl":
        return False
    for option, value in zip(texts, (*texts[1:], ""), strict=False):
        if option in ("-X", "--request") and value.upper() in _WRITING_METHODS:
            return True
        if option.startswith(("-X", "--request=")) and option[2:].upper().endswith(
            tuple(_WRITING_METHODS)
        ):
            return True
        if re.match(r"-[a-zA-Z]*[dTF]|--(data|json|form|upload-file)", option):
            return True
    return False
