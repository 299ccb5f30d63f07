"""The requests of the protocol that the server answers, as JSON values for any transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rekindle.errors import RekindleError
from rekindle.json_fields import as_object

from .tools import TOOLS, ServerTool
from .uris import SCHEME

if TYPE_CHECKING:
    from .service import SessionService

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603  # of JSON-RPC
_MIME_TYPE = "text/plain"
_CLOSED = {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_TEMPLATES = (
    {
        "uriTemplate": f"{SCHEME}://session/{{id}}{{?after}}",
        "name": "session",
        "description": "A past session, page by page, quoted as data.",
        "mimeType": _MIME_TYPE,
    },
    {
        "uriTemplate": f"{SCHEME}://playbook/{{+project}}",
        "name": "playbook",
        "description": "What a project's sessions learned: commands, fixes and files.",
        "mimeType": _MIME_TYPE,
    },
)


class RequestRefused(Exception):
    """A request that is answered with an error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestHandler:
    """Answers requests; the service is created when the first one needs it."""

    def __init__(self, get_service: Callable[[], SessionService]) -> None:
        self._get_service = get_service
        self._methods: Mapping[str, Callable[[Mapping[str, Any], Sequence[str]], Any]] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
        }

    def answer(
        self, method: str, params: Mapping[str, Any], client_folders: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the result of a request; raise `RequestRefused` if there is none."""
        handle = self._methods.get(method)
        if handle is None:
            raise RequestRefused(METHOD_NOT_FOUND, "Method not found")
        try:
            return handle(params, client_folders)
        except (RekindleError, OSError) as error:
            message = self._get_service().describe_error(error)
            raise RequestRefused(INVALID_PARAMS, message) from None

    def _list_tools(self, _params: Mapping[str, Any], _folders: Sequence[str]) -> Any:
        return {"tools": [_tool_to_dict(one) for one in TOOLS.values()]}

    def _call_tool(self, params: Mapping[str, Any], folders: Sequence[str]) -> Any:
        name, arguments = _get_text(params, "name"), as_object(params.get("arguments"))
        answer = self._get_service().call_tool(name, arguments, folders)
        return {"content": [{"type": "text", "text": answer.text}], "isError": answer.failed}

    def _list_resources(self, params: Mapping[str, Any], folders: Sequence[str]) -> Any:
        cursor = _get_text(params, "cursor") if params.get("cursor") is not None else None
        page = self._get_service().list_resources(cursor, folders)
        result: dict[str, Any] = {
            "resources": [{**one._asdict(), "mimeType": _MIME_TYPE} for one in page.resources]
        }
        return result if page.next_cursor is None else {**result, "nextCursor": page.next_cursor}

    def _list_templates(self, _params: Mapping[str, Any], _folders: Sequence[str]) -> Any:
        return {"resourceTemplates": list(_TEMPLATES)}

    def _read_resource(self, params: Mapping[str, Any], folders: Sequence[str]) -> Any:
        uri = _get_text(params, "uri")
        text = self._get_service().read_resource(uri, folders)
        return {"contents": [{"uri": uri, "mimeType": _MIME_TYPE, "text": text}]}


def _get_text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise RequestRefused(INVALID_PARAMS, f"{name}: expected a string")
    return value


def _tool_to_dict(tool: ServerTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.parameters),
        "annotations": {"title": tool.title, "readOnlyHint": not tool.writes, **_CLOSED},
    }
