"""The folder of templates: one JSON file for each, named by its id.

Files are written whole or not at all, and only their owner can read them. Everyone who changes one
holds the folder's lock, and a change raises the revision: who wants to change what is no longer
there is told so.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rekindle.errors import Ambiguous, InvalidInput, NotFound, StoreBusy
from rekindle.knowledge import file_format
from rekindle.types import JSON, Template, replace

if TYPE_CHECKING:
    from rekindle.store import Store

try:
    import fcntl
except ImportError:  # Windows: a revision still tells that somebody was faster
    fcntl = None

PATIENCE = 30.0  # seconds to wait for another writer
LONGEST_NAME = 100
LONGEST_TAG = 100
_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_ENVELOPE = "rekindle-template"


class Entry(NamedTuple):
    """A file of the folder: its template, or what is wrong with it."""

    id: str
    template: Template | None
    problem: str = ""


def checked_name(name: str) -> str:
    """A name that a template can have, or a refusal."""
    clean = " ".join(name.split())
    wrong = next((char for char in clean if not char.isprintable() or char in "/\\"), None)
    if wrong is not None:
        raise InvalidInput(f"name {name!r:.120}: {wrong!r} cannot be part of a template's name")
    if not 0 < len(clean) <= LONGEST_NAME or not clean.strip("."):
        raise InvalidInput(
            f"name {name!r:.120}: expected 1 to {LONGEST_NAME} characters, not only dots"
        )
    return clean


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags that a template can have, each once, or a refusal."""
    clean = [" ".join(tag.split()) for tag in tags]
    for tag in clean:
        if not 0 < len(tag) <= LONGEST_TAG or not file_format.is_text(tag):
            raise InvalidInput(
                f"tag {tag!r:.40}: expected 1 to {LONGEST_TAG} characters of text in UTF-8"
            )
    return tuple(dict.fromkeys(clean))


def checked_description(text: str) -> str:
    """A description that a template can have, or a refusal."""
    if len(text) > file_format.LONGEST or not file_format.is_text(text):
        raise InvalidInput(
            f"description {text!r:.40}: expected at most {file_format.LONGEST:,} characters of text in UTF-8"
        )
    return text


def alike(name: str) -> str:
    """What two names have in common that are the same name: case and white space do not matter."""
    return unicodedata.normalize("NFC", " ".join(name.split())).casefold()


def slug(name: str) -> str:
    """The id that a name makes: its letters and digits, with dashes between."""
    clean = checked_name(name)
    plain = unicodedata.normalize("NFKD", clean).encode("ascii", "ignore").decode().lower()
    made = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:48].strip("-")
    if len(made) >= 2 or made == clean.lower():
        return made
    return f"{made or 'template'}-{sha256(clean.encode('utf-8', 'replace')).hexdigest()[:8]}"


class Templates:
    """The templates of one folder."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock

    @classmethod
    def of_home(cls, home: Path) -> Templates:
        """Those of the folder that holds everything of Rekindle."""
        return cls(home / "templates")

    # ── reading

    def ids(self) -> list[str]:
        """The ids of all files in the folder."""
        return sorted(self.stamps())

    def stamps(self) -> dict[str, str]:
        """For each template a stamp of its file: it changes when the file does."""
        found: dict[str, str] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    name = entry.name.removesuffix(".json")
                    if name == entry.name or not _ID.fullmatch(name):
                        continue
                    try:
                        stat = entry.stat()
                    except OSError:  # it went meanwhile
                        continue
                    found[name] = f"{stat.st_mtime_ns}-{stat.st_size}-{stat.st_ino}"
        except FileNotFoundError:
            pass
        return found

    def all(self) -> list[Entry]:
        """Every file; one that cannot be read says why, and hides no other."""
        return [self._entry(id) for id in self.ids()]

    def _entry(self, id: str) -> Entry:
        try:
            return Entry(id, self.read(id))
        except (InvalidInput, NotFound, OSError) as error:
            return Entry(id, None, str(error))

    def read(self, id: str) -> Template:
        """The template with this id."""
        path = self.path(id)
        try:
            with path.open("rb") as file:
                data = file.read(file_format.MOST_BYTES + 1)  # one more tells that it is too large
        except FileNotFoundError:
            raise NotFound(f"no template {id!r}") from None
        template = file_format.template_of(file_format.parsed(data, str(path)), str(path))
        if template.id != id:
            raise InvalidInput(
                f"{path}: id: expected {id!r}, the name of the file, got {template.id!r}"
            )
        return template

    def find(self, name: str) -> Template:
        """The template with this id or name."""
        if _ID.fullmatch(name) and self.path(name).exists():
            return self.read(name)
        return one_of(self.named(name), name)

    def named(self, name: str) -> list[Template]:
        """The templates that have this name."""
        wanted = alike(name)
        return [e.template for e in self.all() if e.template and alike(e.template.name) == wanted]

    def id_for(self, name: str) -> str:
        """The id for a name: of the template that has it, else the one that it makes."""
        id = slug(name)
        if self.path(id).exists() and is_called(self.read(id), name):
            return id
        found = self.named(name)
        return one_of(found, name).id if found else id

    def path(self, id: str) -> Path:
        """The file of a template; only what is an id can name one."""
        if not _ID.fullmatch(id):
            raise NotFound(f"no template {id!r:.120}: an id has small letters, digits and dashes")
        return self.folder / f"{id}.json"

    # ── writing

    def create(
        self, template: Template, *, over: Callable[[Template], Template] | None = None
    ) -> Template:
        """Write a new template. `over` may let another take the place of the one that is there.

        It is given that one, and gives its next revision, or refuses.
        """
        with self._locked():
            path, now = self.path(template.id), self._clock()
            made = replace(template, revision=1, created=now, updated=now)
            if path.exists():
                old = self.read(template.id)
                if over is None:
                    raise InvalidInput(
                        f"template {old.id!r}: there is one already, “{old.name}”: take another name"
                    )
                made = replace(
                    over(old),
                    id=old.id,
                    revision=old.revision + 1,
                    created=old.created or now,
                    updated=now,
                )
            self._write(path, made)
            return made

    def change(
        self, name: str, change: Callable[[Template], Template], *, revision: int | None = None
    ) -> Template:
        """Change a template; with `revision`, only if it still is that one."""
        with self._locked():
            old = self.find(name)
            if revision is not None and old.revision != revision:
                raise InvalidInput(
                    f"template {old.id!r} was changed meanwhile: it has revision {old.revision},"
                    f" not {revision}; look at it again"
                )
            new = change(old)
            made = replace(
                new,
                id=old.id,
                revision=old.revision + 1,
                created=old.created,
                updated=self._clock(),
            )
            self._write(self.path(old.id), made)
            return made

    def delete(self, name: str) -> str:
        """Delete a template by id or name, also one that cannot be read; its id."""
        with self._locked():
            id = name if _ID.fullmatch(name) and self.path(name).exists() else self.find(name).id
            self.path(id).unlink()
            return id

    def _write(self, path: Path, template: Template) -> None:
        checked_name(template.name)
        where = f"template {template.id!r}"
        data = file_format.data_of(template, where)
        # What cannot be read again must not be written.
        file_format.template_of(file_format.parsed(data, where), where)
        write_private(path, data)

    @contextmanager
    def _locked(self) -> Generator[None]:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            _wait_for(file, self.folder)
            yield
        finally:
            os.close(file)  # the kernel gives the lock back with it


def one_of(found: Sequence[Template], name: str) -> Template:
    """The only template that goes by this name."""
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(one.id for one in found)
        raise Ambiguous(f"{name!r:.120} is the name of more than one template: {ids}")
    raise NotFound(f"no template {name!r:.120}: `rekindle warm list` shows those there are")


def is_called(template: Template, name: str) -> bool:
    """Does a template go by this name or id?"""
    return name == template.id or alike(template.name) == alike(name)


def _wait_for(file: int, folder: Path) -> None:
    if fcntl is None:
        return
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreBusy(
                    f"{folder}: another writer has not finished for {PATIENCE:.0f} s"
                ) from None
            time.sleep(0.01)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read: whole, or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        file = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems have no such thing
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


# ── from one machine to another


def exported(template: Template, program: str, now: float) -> bytes:
    """A template as one file for others: with a checksum, and where it comes from."""
    import json

    # Whose sessions they were is nobody's business elsewhere.
    given = replace(
        template, scan={k: v for k, v in template.scan.items() if k != file_format.OWNER}
    )
    envelope: dict[str, JSON] = {
        "kind": _ENVELOPE,
        "format": file_format.FORMAT,
        "checksum": file_format.checksum(given),
        "provenance": {
            "program": program,
            "exported": now,
            "made": given.made,
            "sessions": len(given.sources),
            "revision": given.revision,
        },
        "template": file_format.fields_of(given),
    }
    return (json.dumps(envelope, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


class Arrival(NamedTuple):
    """A template from others, and what its file tells of where it comes from."""

    template: Template
    origin: Mapping[str, JSON]


def arrived(data: bytes, where: str) -> Arrival:
    """The template in a file from others, if it is whole, with its provenance."""
    fields = file_format.parsed(data, where)
    _check_envelope(fields, where)
    inner = fields.get("template")
    if not isinstance(inner, dict):
        raise InvalidInput(f"{where}: template: expected an object")
    template = file_format.template_of(inner, f"{where}: template")  # pyright: ignore[reportUnknownArgumentType]
    if file_format.checksum(template) != fields.get("checksum"):
        raise InvalidInput(
            f"{where}: the checksum does not fit: the file was changed or cut after it was exported"
        )
    return Arrival(
        template, file_format.origin_of(fields.get("provenance", {}), f"{where}: provenance")
    )


def _check_envelope(fields: Mapping[str, JSON], where: str) -> None:
    if fields.get("kind") != _ENVELOPE:
        raise InvalidInput(
            f'{where} is not an exported template: expected "kind": "{_ENVELOPE}";'
            " make one with `rekindle warm export`"
        )
    known = ("kind", "format", "checksum", "provenance", "template")
    if not isinstance(fields.get("format"), int) or fields["format"] > file_format.FORMAT:
        raise InvalidInput(
            f"{where} has format {fields.get('format')!r:.40}, this Rekindle reads format"
            f" {file_format.FORMAT}: upgrade Rekindle"
        )
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise InvalidInput(
            f"{where}: unknown field {unknown[0]!r:.60}; known are {', '.join(known)}"
        )


def tools_of(templates: Iterable[Template]) -> list[str]:
    """The tools that templates speak of."""
    return sorted({step.tool for one in templates for p in one.patterns for step in p.steps})


def index(store: Store, folder: Templates, *, tell: Callable[[str], None] | None = None) -> int:
    """Bring the index up to date with the files; how many of them were read."""
    there, known = folder.stamps(), store.patterns.stamps()
    gone = [id for id in known if id not in there]
    read = 0
    for id, stamp in there.items():
        if known.get(id) == stamp:
            continue
        try:
            store.patterns.put(folder.read(id), stamp)
            read += 1
        except (InvalidInput, NotFound, OSError) as error:
            if id in known:
                gone.append(id)  # what cannot be read cannot be used
            if tell:
                tell(str(error))
    if gone:
        store.patterns.drop(gone)
    store.patterns.tidy(read)
    return read
