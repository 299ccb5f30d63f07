"""Sessions for the OpenAI Agents SDK: `Runner.run(agent, "…", session=RekindleSession("name"))`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from agents import RunHooks
from agents.memory import SessionSettings

from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.types import Tokens

from .responses_items import item_to_message, message_to_items
from .session_access import SessionAccess

if TYPE_CHECKING:
    from agents import Agent, ModelResponse, RunContextWrapper, TResponseInputItem

SOURCE = "openai-agents"


class RekindleSession:
    """A session of the SDK that is kept in a Rekindle store.

    Without `store` it is the store of the settings, where the `rekindle` command finds it. An item of
    the conversation is one message of the session. `pop_item` and `clear_session` remove messages
    from the conversation, and `Store.redo` brings them back.
    """

    def __init__(
        self,
        session_id: str,
        store: AsyncStore | Store | None = None,
        *,
        owner: str | None = None,
        title: str | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self.access = SessionAccess(session_id, store, source=SOURCE, owner=owner, title=title)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the conversation, or its latest `limit` items."""
        settings = self.session_settings
        most = limit if limit is not None else settings.limit if settings else None
        messages = await self.access.load(None if most is None or most < 0 else most)
        items = [item for message in messages for item in message_to_items(message)]
        return cast("list[TResponseInputItem]", items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the conversation; they are durable when this returns."""
        await self.access.append([item_to_message(cast(Mapping[str, Any], item)) for item in items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the latest item, None if there is none."""
        message = await self.access.remove_last()
        if message is None:
            return None
        return cast("TResponseInputItem", message_to_items(message)[-1])

    async def clear_session(self) -> None:
        """Remove all items from the conversation."""
        await self.access.clear()


class UsageHooks(RunHooks[Any]):
    """Record the cost of a run: `Runner.run(…, session=session, hooks=UsageHooks(session))`."""

    def __init__(self, session: RekindleSession) -> None:
        self._access = session.access

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse
    ) -> None:
        """Add the tokens of one answer to the session."""
        usage = response.usage
        cached = usage.input_tokens_details.cached_tokens or 0
        reasoning = usage.output_tokens_details.reasoning_tokens or 0
        tokens = Tokens(
            input=usage.input_tokens - cached,
            output=usage.output_tokens,
            cache_read=cached,
            reasoning=reasoning,
        )
        model = agent.model if isinstance(agent.model, str) else "unknown"
        await self._access.add_usage(model, tokens)
