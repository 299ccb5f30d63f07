"""Rekindle: agent sessions that survive, resume, and start warm.

Everything that the documentation uses is imported from here (docs/python.md lists it); each name is
loaded on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rekindle.agent.compaction import compress_session
    from rekindle.agent.conversation import format_conversation, load_conversation
    from rekindle.agent.model.client import Endpoint, Model, ModelResponse, RetryPolicy, TextDelta
    from rekindle.agent.model.providers import Provider
    from rekindle.agent.tools.builtin.process import build_background_tools
    from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
    from rekindle.agent.tools.registry import Toolbox, ToolRegistry
    from rekindle.agent.tools.tool import (
        ApprovalRequest,
        Tool,
        ToolContext,
        ToolResult,
        build_schema,
    )
    from rekindle.agent.turn import (
        Compacted,
        ToolCalled,
        ToolReturned,
        TurnContext,
        TurnEnded,
        TurnLimits,
        run_turn,
    )
    from rekindle.analytics.insights import Insights, compute_insights
    from rekindle.errors import (
        AmbiguousName,
        ContextTooLong,
        InvalidInput,
        InvalidSetting,
        ModelError,
        ModelOverloaded,
        ModelRequestRejected,
        ModelUnreachable,
        NotFound,
        PlatformError,
        ProcessError,
        RekindleError,
        StoreBusy,
        StoreClosed,
        StoreDamaged,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreTooNew,
        StoreUnavailable,
        StreamBroken,
        TitleTaken,
        ToolError,
    )
    from rekindle.gateway.access.gate import Gate
    from rekindle.gateway.access.rules import AccessRules
    from rekindle.gateway.context import GatewayContext
    from rekindle.gateway.gateway import Gateway, GatewayOptions
    from rekindle.integrations.wrapping.wrapper import wrap
    from rekindle.learning.build import build_template
    from rekindle.learning.library import TemplateLibrary
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.learning.notes.recall import (
        recall_at_failure,
        recall_at_start,
        recall_before_call,
    )
    from rekindle.learning.verdicts.judged_sessions import iter_judged_sessions
    from rekindle.learning.warm_start import (
        NewSession,
        WarmStartConfig,
        WarmStarter,
        begin_session,
        build_opening_messages,
    )
    from rekindle.platforms import Platform, PlatformMessage
    from rekindle.processes.supervisor.registry import ProcessRegistry
    from rekindle.redaction.redactor import Redactor
    from rekindle.store import Filter, Store, open_store
    from rekindle.store.async_store import AsyncStore, open_async_store
    from rekindle.store.store_executor import StoreExecutor
    from rekindle.transcripts import detect_format, read_transcript
    from rekindle.transcripts.importer import ImportReport, import_transcripts
    from rekindle.types import (
        ROLES,
        Finding,
        Hit,
        JudgedCall,
        JudgedSession,
        KeyRule,
        Message,
        Overridable,
        Price,
        ResetPolicy,
        Rewind,
        Route,
        Session,
        Source,
        StoreStats,
        Template,
        TemplateNote,
        Tokens,
        ToolCall,
        Usage,
        to_json_value,
    )

__version__ = "0.1.0"
__all__ = [
    "BUILTIN_TOOLS",
    "ROLES",
    "AccessRules",
    "AmbiguousName",
    "ApprovalRequest",
    "AsyncStore",
    "Compacted",
    "ContextTooLong",
    "Endpoint",
    "Filter",
    "Finding",
    "Gate",
    "Gateway",
    "GatewayContext",
    "GatewayOptions",
    "Hit",
    "ImportReport",
    "Insights",
    "InvalidInput",
    "InvalidSetting",
    "JudgedCall",
    "JudgedSession",
    "KeyRule",
    "Message",
    "Model",
    "ModelError",
    "ModelOverloaded",
    "ModelRequestRejected",
    "ModelResponse",
    "ModelUnreachable",
    "NewSession",
    "NotFound",
    "Overridable",
    "Platform",
    "PlatformError",
    "PlatformMessage",
    "Price",
    "ProcessError",
    "ProcessRegistry",
    "Provider",
    "Redactor",
    "RekindleError",
    "ResetPolicy",
    "RetryPolicy",
    "Rewind",
    "Route",
    "Session",
    "Source",
    "Store",
    "StoreBusy",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreExecutor",
    "StoreFull",
    "StoreReadOnly",
    "StoreStats",
    "StoreTooNew",
    "StoreUnavailable",
    "StreamBroken",
    "Template",
    "TemplateLibrary",
    "TemplateNote",
    "TextDelta",
    "TitleTaken",
    "Tokens",
    "Tool",
    "ToolCall",
    "ToolCalled",
    "ToolContext",
    "ToolError",
    "ToolRegistry",
    "ToolResult",
    "ToolReturned",
    "Toolbox",
    "TurnContext",
    "TurnEnded",
    "TurnLimits",
    "Usage",
    "WarmStartConfig",
    "WarmStarter",
    "begin_session",
    "build_background_tools",
    "build_opening_messages",
    "build_schema",
    "build_template",
    "compress_session",
    "compute_insights",
    "detect_format",
    "format_conversation",
    "import_transcripts",
    "iter_judged_sessions",
    "learn_from_sessions",
    "load_conversation",
    "open_async_store",
    "open_store",
    "read_transcript",
    "recall_at_failure",
    "recall_at_start",
    "recall_before_call",
    "run_turn",
    "to_json_value",
    "wrap",
]

_NAMES = {  # by module
    "errors": (
        "RekindleError InvalidInput InvalidSetting TitleTaken NotFound AmbiguousName "
        "StoreError StoreBusy StoreFull StoreReadOnly StoreDamaged StoreTooNew "
        "StoreUnavailable StoreClosed ToolError PlatformError ProcessError ModelError "
        "ModelRequestRejected ContextTooLong ModelOverloaded ModelUnreachable StreamBroken"
    ),
    "types": (
        "Finding Hit JudgedCall JudgedSession KeyRule Message Overridable Price "
        "ResetPolicy Rewind ROLES Route Session Source StoreStats Template TemplateNote Tokens "
        "ToolCall "
        "Usage to_json_value"
    ),
    "store": "Filter Store open_store",
    "store.async_store": "AsyncStore open_async_store",
    "store.store_executor": "StoreExecutor",
    "transcripts": "detect_format read_transcript",
    "transcripts.importer": "ImportReport import_transcripts",
    "agent.conversation": "format_conversation load_conversation",
    "agent.model.client": "Endpoint Model ModelResponse RetryPolicy TextDelta",
    "agent.model.providers": "Provider",
    "agent.compaction": "compress_session",
    "agent.turn": "Compacted ToolCalled ToolReturned TurnContext TurnEnded TurnLimits run_turn",
    "agent.tools.registry": "Toolbox ToolRegistry",
    "agent.tools.tool": "ApprovalRequest Tool ToolContext ToolResult build_schema",
    "agent.tools.builtin.toolset": "BUILTIN_TOOLS",
    "agent.tools.builtin.process": "build_background_tools",
    "processes.supervisor.registry": "ProcessRegistry",
    "platforms": "Platform PlatformMessage",
    "gateway.access.gate": "Gate",
    "gateway.access.rules": "AccessRules",
    "gateway.context": "GatewayContext",
    "gateway.gateway": "Gateway GatewayOptions",
    "integrations.wrapping.wrapper": "wrap",
    "redaction.redactor": "Redactor",
    "analytics.insights": "Insights compute_insights",
    "learning.verdicts.judged_sessions": "iter_judged_sessions",
    "learning.build": "build_template",
    "learning.library": "TemplateLibrary",
    "learning.notes.learner": "learn_from_sessions",
    "learning.notes.recall": "recall_at_failure recall_at_start recall_before_call",
    "learning.warm_start": (
        "NewSession WarmStartConfig WarmStarter begin_session build_opening_messages"
    ),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that `rekindle --version` imports none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = next(module for module, names in _NAMES.items() if name in names.split())
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
