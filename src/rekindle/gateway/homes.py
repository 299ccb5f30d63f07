"""The home channels: where each platform's news go that belong to no conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ..errors import InvalidInput
from ..routing.source import from_json, to_json
from ..types import Source


class Homes:
    """One home channel for each platform, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._homes = {home.platform: home for home in _read(file)}

    def __iter__(self) -> Iterator[Source]:
        return iter([*self._homes.values()])

    def set(self, source: Source) -> None:
        """Make a chat the home of its platform. Who asked for it is no part of it."""
        home = source._replace(user_id=None, user_name=None)
        homes = {**self._homes, home.platform: home}
        draft = self._file.with_suffix(".draft")
        draft.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.touch(mode=0o600)
        draft.write_text(json.dumps([to_json(each) for each in homes.values()], indent=1))
        draft.replace(self._file)
        self._homes = homes


def _read(file: Path) -> list[Source]:
    try:
        return [from_json(each) for each in json.loads(file.read_text())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"{file}: the home channels cannot be read: {error}") from error
