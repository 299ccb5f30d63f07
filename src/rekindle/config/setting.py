"""One setting: its type, its default, what is allowed, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args, get_origin

from rekindle.errors import InvalidSetting

Value: TypeAlias = str | int | float | bool | Decimal | tuple[str, ...] | Mapping[str, str] | None
Form: TypeAlias = Literal["plain", "path", "zone", "address", "secret"]

_WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    Decimal: "an amount",
    bool: "true or false",
    str: "text",
    list: "a list of texts",
    dict: "a table of texts",
}
# An option that is followed by a secret, or holds one behind `=`.
_SECRET_OPTION = re.compile(r"-{1,2}[\w-]*(?:key|token|secret|password|auth)[\w-]*", re.IGNORECASE)
_SECRET_FIELD = r"(?i)([?&][\w-]*(?:password|key|token|secret)[\w-]*=)[^&\s]*"


class Limits(NamedTuple):
    """The smallest and largest value of a number."""

    least: float
    most: float = float("inf")


def setting(
    default: Any,
    help: str,
    *,
    env: str = "",
    limits: Limits | None = None,
    form: Form = "plain",
) -> Any:
    """Declare a setting; `form` says what its text is: a `path` names a file unless it is a URL."""
    about = {"help": help, "env": env, "limits": limits, "form": form}
    if isinstance(default, dict):
        return field(default_factory=dict[str, str], metadata=about, repr=form != "secret")
    return field(default=default, metadata=about, repr=form != "secret")


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table of settings."""

    name: str
    kind: type
    default: Value
    help: str
    env: str
    allowed: tuple[str, ...] = ()
    limits: Limits | None = None
    form: Form = "plain"

    def public(self, value: Value) -> Value:
        """A value of it without what is secret in it."""
        if isinstance(value, Mapping):
            return dict.fromkeys(value, "***") if self.form == "secret" else value
        if isinstance(value, tuple):
            return masked_options(value)
        if isinstance(value, str) and value:
            return "***" if self.form == "secret" else masked(value)
        return value

    def shown(self, value: Value) -> str:
        """A value of it for people, without what is secret in it."""
        if value is None or value in ("", (), {}):
            return "not set"
        value = self.public(value)
        if isinstance(value, Mapping):
            return ", ".join(f"{name}={text}" for name, text in value.items())
        return " ".join(value) if isinstance(value, tuple) else masked(value)

    @property
    def expected(self) -> str:
        """What is allowed, for people."""
        if self.allowed:
            return " or ".join(self.allowed)
        if self.form == "zone":
            return "a time zone such as Europe/Berlin, or local"
        if self.form == "address":
            return "an http:// or https:// URL"
        text = _WORDS[self.kind]
        if self.limits is None:
            return text
        least, most = self.limits
        return f"{text} from {least:g}" + ("" if most == float("inf") else f" to {most:g}")


def setting_from(name: str, hint: Any, default: Value, about: Mapping[str, Any]) -> Setting:
    """The setting that a field of a section declares."""
    bare = [one for one in get_args(hint) if one is not NoneType]
    choices = cast("tuple[str, ...]", get_args(hint) if get_origin(hint) is Literal else ())
    kinds: dict[Any, type] = {Literal: str, tuple: list, Mapping: dict}
    kind: type = kinds.get(get_origin(hint)) or (bare[0] if bare else hint)
    return Setting(
        name=name,
        kind=kind,
        default=default,
        help=about["help"],
        env=about["env"],
        allowed=choices,
        limits=about["limits"],
        form=about["form"],
    )


def from_text(one: Setting, text: str) -> Any:
    """An environment variable's text as the type the setting wants; as it is when it cannot be."""
    if one.kind is bool:
        words = {"1": True, "true": True, "yes": True, "on": True}
        words |= {"0": False, "false": False, "no": False, "off": False}
        return words.get(text.lower(), text)
    try:
        return one.kind(text)
    except (ValueError, InvalidOperation):
        return text


def checked(one: Setting, value: Any, place: str) -> Value:
    """The value as the setting holds it, or a refusal with name and place."""
    is_number = type(value) in (int, Decimal)  # a file has no floats, for the sake of amounts
    if is_number and type(value) is not one.kind and one.kind in (int, float, Decimal):
        value = Decimal(value) if one.kind is Decimal else float(value)
    if type(value) is not one.kind or not _fits(one, value):
        shown = masked(repr(value))
        if one.form == "secret" or one.kind in (list, dict):
            shown = "***"
        raise InvalidSetting(
            f"{one.name} in {place}: {shown} is not allowed; allowed: {one.expected}"
        )
    return tuple(cast("list[str]", value)) if one.kind is list else value


def _fits(one: Setting, value: Any) -> bool:
    """Is a value of the right type one of those allowed?"""
    if one.allowed:
        return value in one.allowed
    if one.kind in (list, dict):
        texts = value.values() if one.kind is dict else value
        return all(isinstance(text, str) for text in texts)
    if one.kind is Decimal and not value.is_finite():
        return False
    if one.limits:
        return one.limits.least <= value <= one.limits.most
    if one.form == "zone":
        return value == "local" or is_zone(value)
    if one.form == "address":
        return re.match(r"https?://[^\s/]+\S*$", value) is not None
    return value != ""


def is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a folder
        return False
    return True


def masked(value: object) -> str:
    """The value for people, without the password or the key in a URL."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f"{value:g}" if isinstance(value, float) else str(value)
    text = re.sub(r"(?<=://)([^/@:\s]*):([^/\s]*)@", r"\1:***@", text)
    return re.sub(_SECRET_FIELD, r"\1***", text)


def masked_options(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a command line, without what an option called like a secret is given."""
    shown: list[str] = []
    hidden = False
    for word in words:
        option, is_given, _ = word.partition("=")
        if _SECRET_OPTION.fullmatch(option):
            shown.append(f"{option}=***" if is_given else word)
        else:
            shown.append("***" if hidden else masked(word))
        hidden = bool(_SECRET_OPTION.fullmatch(word))
    return tuple(shown)
