"""Find options and variables that skip a check: hooks, signatures, certificates, permissions.

A command may need one of them once, after its user said so. Nobody should be advised to use it.
"""

from __future__ import annotations

import re

_OPTION = re.compile(
    r"--no-verify(?:-ssl)?|--no-gpg-sign|--no-check-certificates?|--insecure(?:-.*)?|--allow-insecure.*"
    r"|--skip-(?:hooks|verify|verification)|--trusted-host|--ignore-certificate-errors|--dangerously-.*"
    r"|--disable-web-security|--yolo|--privileged|--allow-unauthenticated|--skip-integrity-check"
    r"|--no-integrity|--unsafe-perm|--proxy-insecure|--allow-downgrades|--no-audit-signatures|--force-yes"
)
_SETTING = re.compile(  # with a value that switches a check off
    r"(?i)(?:--?)?(?:ignore[-_]scripts|(?:\w+[._-])?strict[-_]ssl|(?:\w+[._-])?ssl[-_]?verify|verify[-_]?ssl"
    r"|check[-_]certificate|gpg[-_]?check|verify|(?:commit|tag)\.gpgsign|(?:npm_config_)?(?:audit|strict_ssl))"
)
_OFF = re.compile(r"(?i)0|false|no|off|none|never")
_VARIABLE = re.compile(
    r"HUSKY|HUSKY_SKIP_HOOKS|LEFTHOOK|SKIP|GIT_SSL_NO_VERIFY|NODE_TLS_REJECT_UNAUTHORIZED"
    r"|PYTHONHTTPSVERIFY|PRE_COMMIT_ALLOW_NO_CONFIG|OVERCOMMIT_DISABLE|(?:SKIP|NO|DISABLE)_(?:\w+_)?"
    r"(?:TESTS?|LINT|CHECKS?|HOOKS?|VERIFY|VERIFICATION|SSL|TLS|SIGN(?:ING)?|AUTH|AUDIT)"
)
_LETTERS = {"git commit": "n", "curl": "k"}  # short options that skip a check


def find_bypass(words: list[str]) -> str | None:
    """Return the first option or variable of a command that skips a check."""
    letters = ""
    for index, word in enumerate(words):
        letters = (
            letters or _LETTERS.get(word) or _LETTERS.get(" ".join(words[index : index + 2]), "")
        )
        name, sign, value = word.partition("=")
        if _OPTION.fullmatch(name) or (sign and _VARIABLE.fullmatch(name)):
            return word
        value = value if sign else "".join(words[index + 1 : index + 2])
        if _SETTING.fullmatch(name) and _OFF.fullmatch(value):
            return word
        if re.fullmatch("-[A-Za-z]+", word) and any(letter in word for letter in letters):
            return word
    return None
