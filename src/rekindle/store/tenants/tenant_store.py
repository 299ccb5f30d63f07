"""The store of one tenant, which counts what is stored against its quota."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rekindle.errors import QuotaExceeded
from rekindle.store.core.rows import encode_json, get_search_text
from rekindle.store.sessions.sessions import get_session_id
from rekindle.store.store import Store
from rekindle.types import JSON, Message, Session, validate_message

from .directory import Quota
from .tenant_inbox import TenantInbox

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rekindle.store.core.engine import Engine
    from rekindle.store.transfer.bulk_import import SessionImport, SessionImportResult
    from rekindle.store.transfer.jsonl import LoadReport
    from rekindle.types import Rewind, Tokens

Charge = Callable[[int, int, bool], None]  # messages, bytes, and whether too much is refused
TENANTS_FOLDER = "tenants"


class TenantStore(Store):
    """Sessions and messages of one tenant. Open one with `Tenants.open_store`."""

    def __init__(
        self,
        engine: Engine,
        quota: Quota,
        charge: Charge,
        check: Callable[[], None],
        **options: Any,
    ) -> None:
        super().__init__(engine, **options)
        self._quota = quota
        self._charge = charge
        self._check = check
        self._on_close: list[Callable[[], None]] = []
        self._is_metered = quota.messages_per_day is not None or quota.bytes_per_day is not None

    def call_on_close(self, callback: Callable[[], None]) -> None:
        """Call a function after this store was closed."""
        self._on_close.append(callback)

    @cached_property
    def inbox(self) -> TenantInbox:
        """The inbox and outbox of platform messages."""
        count = partial(self._count, refuses=False)
        return TenantInbox(self._engine, self._write, self._clock, count=count)

    def check_quota(self) -> None:
        """Raise `QuotaExceeded` if nothing more may be stored today."""
        if self._is_metered:
            self._check()

    def close(self) -> None:
        """Close files and connections."""
        super().close()
        while self._on_close:
            self._on_close.pop()()

    def append(
        self,
        session: Session | str,
        *messages: Message | Mapping[str, JSON],
        used: Mapping[str, Tokens] | None = None,
    ) -> list[int]:
        """Append messages as `Store.append` does; raise `QuotaExceeded` if they are too many."""
        valid = [validate_message(message) for message in messages]
        with self._count([get_session_id(session)], valid):
            return super().append(session, *valid, used=used)

    def submit_append(
        self,
        session: Session | str,
        *messages: Message | Mapping[str, JSON],
        used: Mapping[str, Tokens] | None = None,
    ) -> Future[list[int]]:
        """Queue messages as `Store.submit_append` does."""
        valid = [validate_message(message) for message in messages]
        with self._count([get_session_id(session)], valid):
            return super().submit_append(session, *valid, used=used)

    def rewrite(
        self, session: Session | str, *messages: Message | Mapping[str, JSON]
    ) -> Rewind | None:
        """Replace the conversation as `Store.rewrite` does."""
        valid = [validate_message(message) for message in messages]
        with self._count([], valid):
            return super().rewrite(session, *valid)

    def compress(self, session: Session | str, *messages: Message | Mapping[str, JSON]) -> Session:
        """Continue a session in a child as `Store.compress` does."""
        valid = [validate_message(message) for message in messages]
        with self._count([""], valid):
            return super().compress(session, *valid)

    def fork(self, session: Session | str, **options: Any) -> Session:
        """Fork a session as `Store.fork` does; its messages count again."""
        copied = self.messages(session) if self._is_metered else []
        with self._count([""], copied):
            return super().fork(session, **options)

    def load(
        self, lines: Iterable[bytes], *, progress: Callable[[int], None] | None = None
    ) -> LoadReport:
        """Load the lines of `dump` as `Store.load` does; each line counts as a message."""
        return super().load(self._count_lines(lines), progress=progress)

    def import_batch(
        self,
        items: Sequence[SessionImport],
        stamps: Mapping[str, str] | None = None,
        during_commit: Callable[[], None] | None = None,
    ) -> list[SessionImportResult]:
        """Import sessions as `Store.import_batch` does."""
        messages = [message for item in items for message in item.messages]
        with self._count([item.session.id for item in items], messages):
            return super().import_batch(items, stamps, during_commit)

    def _count_lines(self, lines: Iterable[bytes]) -> Iterable[bytes]:
        for line in lines:
            self._check_sessions([""])
            if self._is_metered:
                self._charge(1, len(line), True)
            yield line

    @contextmanager
    def _count(
        self, sessions: Sequence[str], messages: Sequence[Message], *, refuses: bool = True
    ) -> Generator[None]:
        """Count messages, and take them back if they are not stored."""
        self._check_sessions(sessions)
        if not self._is_metered or not messages:
            yield
            return
        size = sum(map(measure_message, messages))
        self._charge(len(messages), size, refuses)
        try:
            yield
        except BaseException:
            self._charge(-len(messages), -size, False)
            raise

    def _check_sessions(self, ids: Sequence[str]) -> None:
        """Raise `QuotaExceeded` if some sessions are new and there is no room for them."""
        limit = self._quota.sessions
        if limit is None or not ids:
            return
        new = {*ids} - {*self._session_nums}
        new -= {*self.find_sessions([*new])} if new else set()
        if new and self._count_stored() + len(new) > limit:
            raise QuotaExceeded(f"The quota of {limit:,} sessions is used up. Delete some first.")

    def _count_stored(self) -> int:
        return self._read(lambda tx: tx.run("SELECT count(*) FROM sessions"))[0][0]


def measure_message(message: Message) -> int:
    """Return the bytes of a message's texts, for quotas."""
    content = message.content
    text = content if isinstance(content, str) else encode_json(content)
    return max(len(text.encode("utf-8", "surrogatepass")), len(get_search_text(message)))


def open_tenant_store(
    target: str,
    tenant: str,
    *,
    quota: Quota,
    charge: Charge,
    check: Callable[[], None],
    durability: Literal["full", "relaxed"] = "full",
    readonly: bool = False,
    busy_seconds: float = 30.0,
    **options: Any,
) -> TenantStore:
    """Open the store of the tenant with this id, next to the store `target` of the server."""
    settings: dict[str, Any] = {
        "durability": durability, "readonly": readonly, "busy_seconds": busy_seconds,
    }  # fmt: skip
    if is_server(target):
        from .tenant_engine import TenantEngine

        engine: Engine = TenantEngine(target, tenant, **settings)
    else:
        from rekindle.store.engines.sqlite import SqliteEngine

        folder = get_tenant_folder(target, tenant)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(folder, 0o700)
        engine = SqliteEngine(str(folder / "sessions.db"), **settings)
    return TenantStore(engine, quota, charge, check, **options)


def is_server(target: str) -> bool:
    """Return whether a store is a PostgreSQL database."""
    return target.startswith(("postgresql://", "postgres://"))


def get_tenant_folder(target: str, tenant: str) -> Path:
    """Return the folder of a tenant's own file, next to the SQLite file of the server."""
    return Path(target).parent / TENANTS_FOLDER / tenant


def delete_tenant_data(target: str, tenant: str) -> None:
    """Delete everything that a tenant has stored."""
    if is_server(target):
        from .shared_tables import delete_tenant_rows
        from .tenant_engine import TenantEngine

        engine = TenantEngine(target, tenant, durability="full", readonly=False, busy_seconds=30.0)
        try:
            engine.transact([lambda tx: delete_tenant_rows(tx.run)])
        finally:
            engine.close()
        return
    import shutil

    folder = get_tenant_folder(target, tenant)
    if folder.exists():
        shutil.rmtree(folder)
