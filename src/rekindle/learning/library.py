"""The template library: a folder with one JSON file per template, named by its id.

Files are written atomically and are readable only by their owner. Every writer holds the folder's
lock, and every change increments the revision: a change based on an outdated revision is rejected.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rekindle.errors import AmbiguousName, InvalidInput, NotFound, StoreBusy
from rekindle.files import write_new_file
from rekindle.knowledge import file_format
from rekindle.types import JSON, Template, replace_fields

if TYPE_CHECKING:
    from rekindle.store import Store

try:
    import fcntl
except ImportError:  # Windows: the revision still detects concurrent changes
    fcntl = None

LOCK_TIMEOUT = 30.0  # seconds
MAX_TEMPLATE_NAME_CHARS = 100
MAX_TAG_CHARS = 100
SHARED_TAG = "shared"  # tag of a template that everybody may use, in every project
_ID_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_EXPORT_KIND = "rekindle-template"


class TemplateEntry(NamedTuple):
    """A file of the library: its template, or the problem with it."""

    id: str
    template: Template | None
    problem: str = ""


def validate_template_name(name: str) -> str:
    """Return a valid template name, or raise InvalidInput."""
    clean = " ".join(name.split())
    wrong = next((char for char in clean if not char.isprintable() or char in "/\\"), None)
    if wrong is not None:
        raise InvalidInput(f"name {name!r:.120}: {wrong!r} is not allowed in a template name")
    if not 0 < len(clean) <= MAX_TEMPLATE_NAME_CHARS or not clean.strip("."):
        raise InvalidInput(
            f"name {name!r:.120}: expected 1 to {MAX_TEMPLATE_NAME_CHARS} characters, not only dots"
        )
    return clean


def validate_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return valid tags without duplicates, or raise InvalidInput."""
    clean = [" ".join(tag.split()) for tag in tags]
    for tag in clean:
        if not 0 < len(tag) <= MAX_TAG_CHARS or not file_format.is_valid_text(tag):
            raise InvalidInput(
                f"tag {tag!r:.40}: expected 1 to {MAX_TAG_CHARS} characters of text in UTF-8"
            )
    return tuple(dict.fromkeys(clean))


def validate_description(text: str) -> str:
    """Return a valid description, or raise InvalidInput."""
    if len(text) > file_format.MAX_TEXT_CHARS or not file_format.is_valid_text(text):
        raise InvalidInput(
            f"description {text!r:.40}: expected at most {file_format.MAX_TEXT_CHARS:,} characters"
            " of text in UTF-8"
        )
    return text


def normalize_name(name: str) -> str:
    """Normalize a name for comparison, ignoring case and whitespace."""
    return unicodedata.normalize("NFC", " ".join(name.split())).casefold()


def make_template_id(name: str) -> str:
    """Make the id for a name: its letters and digits, joined by dashes."""
    clean = validate_template_name(name)
    ascii_name = unicodedata.normalize("NFKD", clean).encode("ascii", "ignore").decode().lower()
    template_id = re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[:48].strip("-")
    if len(template_id) >= 2 or template_id == clean.lower():
        return template_id
    return f"{template_id or 'template'}-{sha256(clean.encode('utf-8', 'replace')).hexdigest()[:8]}"


class TemplateLibrary:
    """The templates in one folder."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock

    @classmethod
    def from_home(cls, home: Path) -> TemplateLibrary:
        """Return the library in Rekindle's home folder."""
        return cls(home / "templates")

    # ── reading

    def list_ids(self) -> list[str]:
        """Return the ids of all files in the folder."""
        return sorted(self.read_stamps())

    def read_stamps(self) -> dict[str, str]:
        """Return a stamp for each template file, which changes when the file does."""
        found: dict[str, str] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    name = entry.name.removesuffix(".json")
                    if name == entry.name or not _ID_PATTERN.fullmatch(name):
                        continue
                    try:
                        stat = entry.stat()
                    except OSError:  # deleted meanwhile
                        continue
                    found[name] = _make_stamp(stat)
        except FileNotFoundError:
            pass
        return found

    def list_entries(self) -> list[TemplateEntry]:
        """Return every file; an unreadable one carries its problem."""
        return [self._read_entry(id) for id in self.list_ids()]

    def _read_entry(self, id: str) -> TemplateEntry:
        try:
            return TemplateEntry(id, self.read(id))
        except (InvalidInput, NotFound, OSError) as error:
            return TemplateEntry(id, None, str(error))

    def read(self, id: str) -> Template:
        """Return the template with this id."""
        path = self.get_path(id)
        try:
            template = _read_file(path, _make_stamp(path.stat()))
        except FileNotFoundError:
            raise NotFound(f"Template not found: {id!r}") from None
        if template.id != id:
            raise InvalidInput(
                f"{path}: id: expected {id!r}, the name of the file, got {template.id!r}"
            )
        return template

    def find(self, name: str) -> Template:
        """Return the template with this id or name."""
        if _ID_PATTERN.fullmatch(name) and self.get_path(name).exists():
            return self.read(name)
        return require_single(self.find_by_name(name), name)

    def find_by_name(self, name: str) -> list[Template]:
        """Return the templates with this name."""
        wanted = normalize_name(name)
        return [
            e.template
            for e in self.list_entries()
            if e.template and normalize_name(e.template.name) == wanted
        ]

    def resolve_id(self, name: str) -> str:
        """Return the id of the template with this name, or the id to give a new one."""
        id = make_template_id(name)
        if self.get_path(id).exists() and has_name(self.read(id), name):
            return id
        found = self.find_by_name(name)
        return require_single(found, name).id if found else id

    def get_path(self, id: str) -> Path:
        """Return the file of a template; reject invalid ids."""
        if not _ID_PATTERN.fullmatch(id):
            raise NotFound(f"Template not found: {id!r:.120}; ids are like `my-template-2`")
        return self.folder / f"{id}.json"

    # ── writing

    def create(
        self, template: Template, *, on_existing: Callable[[Template], Template] | None = None
    ) -> Template:
        """Write a new template.

        If the id exists, `on_existing` receives the existing template and returns its next revision
        or raises.
        """
        with self._lock():
            path, now = self.get_path(template.id), self._clock()
            made = replace_fields(template, revision=1, created=now, updated=now)
            if path.exists():
                old = self.read(template.id)
                if on_existing is None:
                    raise InvalidInput(
                        f"template {old.id!r}: already exists, “{old.name}”; choose another name"
                    )
                made = replace_fields(
                    on_existing(old),
                    id=old.id,
                    revision=old.revision + 1,
                    created=old.created or now,
                    updated=now,
                )
            self._write(path, made)
            return made

    def update(
        self, name: str, change: Callable[[Template], Template], *, revision: int | None = None
    ) -> Template:
        """Update a template; with `revision`, only if it is still the current one."""
        with self._lock():
            old = self.find(name)
            if revision is not None and old.revision != revision:
                raise InvalidInput(
                    f"template {old.id!r} was changed meanwhile: it is at revision {old.revision},"
                    f" not {revision}; review it again"
                )
            new = change(old)
            made = replace_fields(
                new,
                id=old.id,
                revision=old.revision + 1,
                created=old.created,
                updated=self._clock(),
            )
            self._write(self.get_path(old.id), made)
            return made

    def delete(self, name: str) -> str:
        """Delete a template by id or name, even an unreadable one; return its id."""
        with self._lock():
            id = (
                name
                if _ID_PATTERN.fullmatch(name) and self.get_path(name).exists()
                else self.find(name).id
            )
            self.get_path(id).unlink()
            return id

    def _write(self, path: Path, template: Template) -> None:
        validate_template_name(template.name)
        where = f"template {template.id!r}"
        data = file_format.encode_template(template, where)
        # Never write a file that cannot be read back.
        file_format.parse_template(file_format.parse_json_object(data, where), where)
        write_private_file(path, data)

    @contextmanager
    def _lock(self) -> Generator[None]:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            _acquire_lock(file, self.folder)
            yield
        finally:
            os.close(file)  # also releases the lock


def _make_stamp(stat: os.stat_result) -> str:
    return f"{stat.st_mtime_ns}-{stat.st_size}-{stat.st_ino}"


@lru_cache(maxsize=64)
def _read_file(path: Path, stamp: str) -> Template:
    """Read a template; a file with the same stamp is read once."""
    with path.open("rb") as file:
        data = file.read(file_format.MAX_BYTES + 1)  # one byte over shows that it is too large
    return file_format.parse_template(file_format.parse_json_object(data, str(path)), str(path))


def require_single(found: Sequence[Template], name: str) -> Template:
    """Return the only template with this name, or raise an error."""
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(one.id for one in found)
        raise AmbiguousName(f"more than one template is named {name!r:.120}: {ids}")
    raise NotFound(f"Template not found: {name!r:.120}. List templates with `rekindle warm list`.")


def has_name(template: Template, name: str) -> bool:
    """Return whether a template has this name or id."""
    return name == template.id or normalize_name(template.name) == normalize_name(name)


def _acquire_lock(file: int, folder: Path) -> None:
    if fcntl is None:
        return
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreBusy(
                    f"{folder}: locked by another writer for over {LOCK_TIMEOUT:.0f} s"
                ) from None
            time.sleep(0.01)


def write_private_file(path: Path, data: bytes) -> None:
    """Atomically write a file that only its owner can read."""
    write_new_file(path, data)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not supported by some file systems
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


# ── export and import


def export_template(template: Template, program: str, now: float) -> bytes:
    """Export a template to a shareable file, with a checksum and its provenance."""
    import json

    # Do not disclose the owner of the sessions.
    given = replace_fields(
        template, scan={k: v for k, v in template.scan.items() if k != file_format.OWNER_KEY}
    )
    fields = file_format.template_to_fields(given)
    envelope: dict[str, JSON] = {
        "kind": _EXPORT_KIND,
        "format": file_format.FORMAT_VERSION,
        "checksum": file_format.compute_checksum(fields),
        "provenance": {
            "program": program,
            "exported": now,
            "made": given.made,
            "sessions": len(given.sources),
            "revision": given.revision,
        },
        "template": fields,
    }
    return (json.dumps(envelope, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


class ExportedTemplate(NamedTuple):
    """A template from an export file, and its provenance."""

    template: Template
    origin: Mapping[str, JSON]


def parse_export(data: bytes, where: str) -> ExportedTemplate:
    """Parse an export file and verify its checksum."""
    fields = file_format.parse_json_object(data, where)
    _check_envelope(fields, where)
    inner = fields.get("template")
    if not isinstance(inner, dict):
        raise InvalidInput(f"{where}: template: expected an object")
    template = file_format.parse_template(inner, f"{where}: template")  # pyright: ignore[reportUnknownArgumentType]
    if file_format.compute_checksum(inner) != fields.get("checksum"):  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidInput(
            f"{where}: checksum mismatch: the file was changed or truncated after export"
        )
    return ExportedTemplate(
        template, file_format.parse_origin(fields.get("provenance", {}), f"{where}: provenance")
    )


def _check_envelope(fields: Mapping[str, JSON], where: str) -> None:
    if fields.get("kind") != _EXPORT_KIND:
        raise InvalidInput(
            f'{where} is not an exported template: expected "kind": "{_EXPORT_KIND}";'
            " create one with `rekindle warm export`"
        )
    known = ("kind", "format", "checksum", "provenance", "template")
    if not isinstance(fields.get("format"), int) or fields["format"] > file_format.FORMAT_VERSION:
        raise InvalidInput(
            f"{where} has format {fields.get('format')!r:.40}, this Rekindle reads format"
            f" {file_format.FORMAT_VERSION}; upgrade Rekindle"
        )
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise InvalidInput(
            f"{where}: unknown field {unknown[0]!r:.60}; expected one of {', '.join(known)}"
        )


def update_index(
    store: Store,
    template_library: TemplateLibrary,
    *,
    on_error: Callable[[str], None] | None = None,
) -> int:
    """Bring the index up to date with the files; return the number of files read."""
    there, known = template_library.read_stamps(), store.template_index.load_stamps()
    gone = [id for id in known if id not in there]
    read = 0
    for id, stamp in there.items():
        if known.get(id) == stamp:
            continue
        try:
            template = template_library.read(id)
            owner = template.scan.get(file_format.OWNER_KEY)
            store.template_index.put(
                template,
                stamp,
                is_shared=SHARED_TAG in template.tags,
                owner=owner if isinstance(owner, str) else None,
            )
            read += 1
        except (InvalidInput, NotFound, OSError) as error:
            if id in known:
                gone.append(id)  # an unreadable template cannot be used
            if on_error:
                on_error(str(error))
    if gone:
        store.template_index.drop(gone)
    return read
