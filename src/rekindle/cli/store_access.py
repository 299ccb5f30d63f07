"""Open the store that a command works on, with what agents have written since the last time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.config import Config, get_home_and_env, is_url, load_config
from rekindle.errors import InvalidInput, NotFound, RekindleError, StoreError, StoreReadOnly

from .terminal.text import format_count

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.tenants import Access, Tenants
    from rekindle.transcripts.importer import ImportReport
    from rekindle.watching.refresh import RefreshResult

    from .output import ProgressCallback

_QUIET_SECONDS = 1.0  # before a refresh says that it is at work
_MAX_PROBLEMS = 3
_REPLICA_SECONDS = 2.0  # to wait for a replica before the store itself is read

_store_override: str | None = None
_is_refresh_due, _is_refreshed = True, False
_shown_notes: set[str] = set()


def set_store_override(target: str | None) -> None:
    """Remember the `--store` option of this command line."""
    global _store_override
    _store_override = target


def set_refresh(is_wanted: bool) -> None:
    """Remember whether this command line has `--no-refresh`; one refresh serves it all."""
    global _is_refresh_due, _is_refreshed
    _is_refresh_due, _is_refreshed = is_wanted, False


def load_settings() -> Config:
    """Load the settings, with `--store` applied; note each setting with an old name once."""
    config = load_config(store=_store_override)
    for note in config.notes:
        if note not in _shown_notes:
            _shown_notes.add(note)
            _print_notice(f"Note: {note}")
    return config


def _print_notice(text: str) -> None:
    from .output import print_notice  # slow to load, and the picker must not wait

    print_notice(text)


def ignore_sigpipe() -> None:
    """Ignore SIGPIPE, so that a lost network connection raises an error instead of killing us."""
    import signal

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def restore_sigpipe() -> None:
    """Restore the default SIGPIPE action, so that `| head` ends the command silently."""
    import signal

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def call_at_stop_signal(stop: Callable[[], object]) -> None:
    """Call `stop` at SIGTERM or SIGINT; a second signal ends the process."""
    import signal

    numbers = (signal.SIGTERM, signal.SIGINT)

    def handle_signal(*_: object) -> None:
        stop()
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        signal.signal(number, handle_signal)


@contextmanager
def open_for_reading(*, refresh: bool = True, from_replica: bool = False) -> Generator[Store]:
    """Open the store for reading, read-only if it cannot be written.

    With `refresh`, import what agents have written since the last time. With `from_replica`, read from
    the replica if there is one: it may lack the last seconds. Raise `NotFound` if `--store` names a
    file that does not exist.
    """
    config = load_settings()
    replica = _connect_replica(config) if from_replica else None
    store, is_writable = (replica, False) if replica else _connect_reader(config, may_create=False)
    with store:
        if refresh and is_writable:
            refresh_with_notice(store)
        yield store
    if _is_refreshed:
        _learn_in_background(config)


@contextmanager
def open_for_notes(*, may_create: bool = True) -> Generator[Store]:
    """Open the store to read notes, after learning from new sessions."""
    config = load_settings()
    store, is_writable = _connect_reader(config, may_create=may_create)
    with store:
        if is_writable:
            refresh_with_notice(store)
        if _is_refreshed:
            _learn_now(config, store)
        yield store


def _connect_reader(config: Config, *, may_create: bool) -> tuple[Store, bool]:
    """Open the store, read-only if it cannot be written; return whether it can."""
    if _store_override is not None and not may_create:
        require_store_file(config.store.url)
    try:
        return connect_store(config, config.store.url), True
    except StoreReadOnly:
        return connect_store(config, config.store.url, readonly=True), False


def _connect_replica(config: Config) -> Store | None:
    """Open the replica of the store, if there is one and it can be reached."""
    target = config.store.replica
    if not target or not is_url(config.store.url) or needs_refresh(config):
        return None
    if _store_override is not None and _store_override != load_config().store.url:
        return None
    if not is_url(target):
        raise InvalidInput("store.replica: expected a postgresql:// URL")
    try:
        return connect_store(config, target, readonly=True, busy_seconds=_REPLICA_SECONDS)
    except StoreError as error:
        _print_notice(f"Note: the replica is not used: {error}")
        return None


@contextmanager
def open_for_writing(*, may_create: bool = False) -> Generator[Store]:
    """Open the store for writing. With `may_create`, `--store` may name a new file."""
    config = load_settings()
    if _store_override is not None and not may_create:
        require_store_file(config.store.url)
    with connect_store(config, config.store.url) as store:
        yield store


def connect_store(
    config: Config, target: str, *, readonly: bool = False, busy_seconds: float | None = None
) -> Store:
    """Open the store `target` with the configured options; the configured one may be a tenant's."""
    if target == config.store.url and is_of_tenant(config):
        return _connect_tenant(config, readonly=readonly)
    from rekindle.store import open_store

    if not is_url(target) and Path(target).parent == config.home:
        config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return open_store(
        target,
        durability=config.store.durability,
        busy_seconds=config.store.busy_seconds if busy_seconds is None else busy_seconds,
        active_seconds=config.retention.active_hours * 3600,
        undo_seconds=config.retention.undo_days * 86400,
        readonly=readonly,
    )


def is_of_tenant(config: Config) -> bool:
    """Return whether commands work on the store of a tenant."""
    return bool(config.store.tenant or config.store.api_key)


def _connect_tenant(config: Config, *, readonly: bool) -> Store:
    """Open the store of the tenant that the settings name, or that their API key belongs to."""
    from rekindle.tenants import open_tenants

    tenants = open_tenants(
        config.store.url,
        durability=config.store.durability,
        busy_seconds=config.store.busy_seconds,
        active_seconds=config.retention.active_hours * 3600,
        undo_seconds=config.retention.undo_days * 86400,
    )
    try:
        who = _identify_tenant(config, tenants, readonly=readonly)
        store = tenants.open_store(who, readonly=readonly)
    except BaseException:
        tenants.close()
        raise
    store.call_on_close(tenants.close)
    return store


def _identify_tenant(config: Config, tenants: Tenants, *, readonly: bool) -> Access | str:
    from rekindle.errors import AccessDenied

    name = config.store.tenant
    if not config.store.api_key:
        return name
    access = tenants.keys.authenticate(config.store.api_key)
    if name and name != access.tenant:
        raise AccessDenied(f"The API key does not belong to tenant {name}.")
    if access.projects is not None:
        raise AccessDenied(
            "This API key is limited to projects; commands need a key without that limit."
        )
    access.require_scope("read")
    if not readonly and not access.has_scope("write"):
        raise StoreReadOnly("This API key has no write scope.")
    return access


def require_store_file(target: str) -> None:
    """Raise `NotFound` if the store file does not exist, since opening it would create it."""
    if is_of_tenant(load_settings()):
        return
    if not is_url(target) and not Path(target).exists():
        raise NotFound(f"Store not found: {target}")


# -- refresh


def refresh_sessions(store: Store, progress: ProgressCallback | None = None) -> list[str]:
    """Import what agents have written since the last time; return what to say about it.

    Whatever goes wrong is one of the lines, and what is stored can be read all the same. Only the first
    call of a command does anything. A screen can call it from a thread of its own.
    """
    global _is_refresh_due, _is_refreshed
    config = load_settings()
    if not needs_refresh(config):
        return []
    _is_refresh_due, _is_refreshed = False, True
    try:
        return _import_changes(config, store, progress)
    except (RekindleError, OSError) as error:
        return [f"New sessions were not imported: {_to_sentence(error)}"]
    except Exception as error:  # noqa: BLE001  # a mistake of ours must not keep anybody from reading
        return [f"New sessions were not imported: {type(error).__name__}: {error}"]


def refresh_with_notice(store: Store) -> None:
    """Import new sessions, with progress if it takes long, and a line at the end."""
    with _show_late_progress("Importing new sessions") as show:
        lines = refresh_sessions(store, show)
    for line in lines:
        _print_notice(line)


def needs_refresh(config: Config) -> bool:
    """Return whether this command should import what agents have written."""
    return _is_refresh_due and _accepts_refresh(config)


def _accepts_refresh(config: Config) -> bool:
    """Return whether new sessions of this machine belong into the store."""
    mode, target = config.store.refresh, config.store.url
    if is_of_tenant(config) or mode == "never" or (mode == "local" and is_url(target)):
        return False
    # Another store than that of the settings is read as it is.
    return _store_override is None or target == load_config().store.url


def _import_changes(config: Config, store: Store, progress: ProgressCallback | None) -> list[str]:
    from rekindle.watching.refresh import BUSY_SECONDS, SessionRefresher, list_problems

    refresher = SessionRefresher(config.home, *get_home_and_env())
    files = refresher.find_changes(store)
    if not files:
        return []
    result = refresher.import_changes(
        lambda: connect_store(config, config.store.url, busy_seconds=BUSY_SECONDS), files, progress
    )
    if result.report is not None and result.report.messages:
        from rekindle.watching.background_learning import mark_pending

        with suppress(OSError):  # then `rekindle warm learn` or the next import learns from them
            mark_pending(config.home)
    problems = list_problems(result)
    lines = [*_describe_refresh(result), *problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"… and {format_count(len(problems) - _MAX_PROBLEMS, 'more problem')}.")
    return lines


@contextmanager
def _show_late_progress(label: str) -> Generator[ProgressCallback]:
    """Show progress once the work lasts: a bar on a terminal, else one line."""
    import sys

    from .output import show_progress

    start = time.monotonic()
    with ExitStack() as stack:
        shown: list[ProgressCallback] = []

        def show(done: int, total: int) -> None:
            if not shown and time.monotonic() - start > _QUIET_SECONDS:
                if not sys.stderr.isatty():
                    _print_notice(f"{label} …")
                shown.append(stack.enter_context(show_progress(label)))
            for callback in shown:
                callback(done, total)

        yield show


def _describe_refresh(result: RefreshResult) -> list[str]:
    if result.report is None:
        return ["Another command is importing new sessions at this moment."]
    return [_format_counts(result.report)] if result.report.sessions else []


def _format_counts(report: ImportReport) -> str:
    """Say how many sessions came from which agents: `3 new sessions from Codex.`."""
    from rekindle.transcripts import FORMATS

    titles = {format.name: format.title for format in FORMATS}
    new = [(one.new_sessions, titles[name]) for name, one in report.formats.items()]
    new = [(count, title) for count, title in new if count]
    updated = report.sessions - report.new_sessions
    if not new:
        names = ", ".join(titles[name] for name, one in report.formats.items() if one.sessions)
        return f"{format_count(updated, 'session')} updated from {names}."
    (count, title), *others = new
    text = f"{format_count(count, 'new session')} from {title}"
    text += "".join(f", {count:,} from {title}" for count, title in others)
    return f"{text}; {updated:,} updated." if updated else f"{text}."


def _learn_in_background(config: Config) -> None:
    from rekindle.watching.background_learning import start_learning

    try:
        start_learning(config.home)
    except OSError as error:
        _print_notice(f"Learning was not started: {_to_sentence(error)}")


def _learn_now(config: Config, store: Store) -> None:
    """Learn from new sessions, because the notes are about to be read."""
    from rekindle.watching.background_learning import is_learning_pending, learn_pending

    if not is_learning_pending(config.home):
        return
    try:
        with _show_late_progress("Learning") as show:
            learn_pending(config.home, store, show)
    except (RekindleError, OSError) as error:
        _print_notice(f"New sessions were not learned from: {_to_sentence(error)}")


def _to_sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith(".") else f"{text}."
