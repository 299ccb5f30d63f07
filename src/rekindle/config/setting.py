"""One setting: its type, default, allowed values, and how it is displayed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args, get_origin

from rekindle.errors import InvalidSetting

Value: TypeAlias = str | int | float | bool | Decimal | tuple[str, ...] | Mapping[str, str] | None
TextForm: TypeAlias = Literal["plain", "path", "zone", "address", "secret"]

_TYPE_NAMES: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    Decimal: "an amount",
    bool: "true or false",
    str: "text",
    list: "a list of strings",
    dict: "a table of strings",
}
# An option whose value is a secret.
_SECRET_OPTION = re.compile(r"-{1,2}[\w-]*(?:key|token|secret|password|auth)[\w-]*", re.IGNORECASE)
_SECRET_FIELD = r"(?i)([?&][\w-]*(?:password|key|token|secret)[\w-]*=)[^&\s]*"


class NumberRange(NamedTuple):
    """The minimum and maximum of a number."""

    minimum: float
    maximum: float = float("inf")


def declare_setting(
    default: Any,
    help: str,
    *,
    env: str = "",
    limits: NumberRange | None = None,
    form: TextForm = "plain",
) -> Any:
    """Declare a setting; `form` describes its text: a `path` names a file unless it is a URL."""
    metadata = {"help": help, "env": env, "limits": limits, "form": form}
    if isinstance(default, dict):
        return field(default_factory=dict[str, str], metadata=metadata, repr=form != "secret")
    return field(default=default, metadata=metadata, repr=form != "secret")


@dataclass(frozen=True, slots=True)
class Setting:
    """A row in the table of settings."""

    name: str
    kind: type
    default: Value
    help: str
    env: str
    allowed: tuple[str, ...] = ()
    limits: NumberRange | None = None
    form: TextForm = "plain"

    def mask_value(self, value: Value) -> Value:
        """Return the value with secrets masked."""
        if isinstance(value, Mapping):
            return dict.fromkeys(value, "***") if self.form == "secret" else value
        if isinstance(value, tuple):
            return mask_options(value)
        if isinstance(value, str) and value:
            return "***" if self.form == "secret" else mask_secrets(value)
        return value

    def format_value(self, value: Value) -> str:
        """Return the value as text for display, with secrets masked."""
        if value is None or value in ("", (), {}):
            return "not set"
        value = self.mask_value(value)
        if isinstance(value, Mapping):
            return ", ".join(f"{name}={text}" for name, text in value.items())
        return " ".join(value) if isinstance(value, tuple) else mask_secrets(value)

    @property
    def expected(self) -> str:
        """A description of the allowed values."""
        if self.allowed:
            return " or ".join(self.allowed)
        if self.form == "zone":
            return "a time zone such as Europe/Berlin, or local"
        if self.form == "address":
            return "an http:// or https:// URL"
        text = _TYPE_NAMES[self.kind]
        if self.limits is None:
            return text
        minimum, maximum = self.limits
        return f"{text} from {minimum:g}" + ("" if maximum == float("inf") else f" to {maximum:g}")


def build_setting(name: str, hint: Any, default: Value, metadata: Mapping[str, Any]) -> Setting:
    """Build the setting that a field of a section declares."""
    member_types = [one for one in get_args(hint) if one is not NoneType]
    choices = cast("tuple[str, ...]", get_args(hint) if get_origin(hint) is Literal else ())
    kinds: dict[Any, type] = {Literal: str, tuple: list, Mapping: dict}
    kind: type = kinds.get(get_origin(hint)) or (member_types[0] if member_types else hint)
    return Setting(
        name=name,
        kind=kind,
        default=default,
        help=metadata["help"],
        env=metadata["env"],
        allowed=choices,
        limits=metadata["limits"],
        form=metadata["form"],
    )


def parse_text(setting: Setting, text: str) -> Any:
    """Convert an environment variable to the setting's type; return the text if that fails."""
    if setting.kind is bool:
        words = {"1": True, "true": True, "yes": True, "on": True}
        words |= {"0": False, "false": False, "no": False, "off": False}
        return words.get(text.lower(), text)
    if setting.kind is list:
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        return setting.kind(text)
    except (ValueError, InvalidOperation):
        return text


def check_value(setting: Setting, value: Any, location: str) -> Value:
    """Return the value in the setting's type, or raise an error with name and location."""
    is_number = type(value) in (int, Decimal)  # the file parser returns Decimal for floats
    if is_number and type(value) is not setting.kind and setting.kind in (int, float, Decimal):
        value = Decimal(value) if setting.kind is Decimal else float(value)
    if type(value) is not setting.kind or not _is_allowed(setting, value):
        shown = mask_secrets(repr(value))
        if setting.form == "secret" or setting.kind in (list, dict):
            shown = "***"
        raise InvalidSetting(
            f"{setting.name} in {location}: invalid value {shown}; expected {setting.expected}"
        )
    return tuple(cast("list[str]", value)) if setting.kind is list else value


def _is_allowed(setting: Setting, value: Any) -> bool:
    """Return whether a value of the right type is allowed."""
    if setting.allowed:
        return value in setting.allowed
    if setting.kind in (list, dict):
        texts = value.values() if setting.kind is dict else value
        return all(isinstance(text, str) for text in texts)
    if setting.kind is Decimal and not value.is_finite():
        return False
    if setting.limits:
        return setting.limits.minimum <= value <= setting.limits.maximum
    if setting.form == "zone":
        return value == "local" or is_time_zone(value)
    if setting.form == "address":
        return re.match(r"https?://[^\s/]+\S*$", value) is not None
    return value != ""


def is_time_zone(name: str) -> bool:
    """Return whether a time zone has this name."""
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name is a folder
        return False
    return True


def mask_secrets(value: object) -> str:
    """Return the value as text, without passwords and keys in URLs."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f"{value:g}" if isinstance(value, float) else str(value)
    text = re.sub(r"(?<=://)([^/@:\s]*):([^/\s]*)@", r"\1:***@", text)
    return re.sub(_SECRET_FIELD, r"\1***", text)


def mask_options(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command line, with the values of secret options masked."""
    masked_words: list[str] = []
    is_secret = False
    for word in words:
        option, is_given, _ = word.partition("=")
        if _SECRET_OPTION.fullmatch(option):
            masked_words.append(f"{option}=***" if is_given else word)
        else:
            masked_words.append("***" if is_secret else mask_secrets(word))
        is_secret = bool(_SECRET_OPTION.fullmatch(word))
    return tuple(masked_words)
