"""One definition of each operation: methods, handlers, and bytes on the socket follow from it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any, cast, get_type_hints

import msgspec
import pytest

from rekindle.errors import InvalidInput
from rekindle.processes import protocol
from rekindle.processes.client import ProcessClient
from rekindle.processes.operations import (
    OPERATIONS,
    AckEvents,
    AttachOutput,
    Operation,
    Processes,
    ReadLog,
    StartProcess,
    get_operation_name,
    get_response_type,
)
from rekindle.processes.supervisor.registry import ProcessRegistry
from rekindle.processes.supervisor.supervisor import decode_operation
from rekindle.processes.types import OutputChunk

CALLED = sorted(set(OPERATIONS) - {"attach"})  # attach is a stream


def send(request: Operation[Any]) -> protocol.RpcRequest:
    """Return a request as the supervisor receives it."""
    sent = protocol.RpcRequest(1, get_operation_name(request), request)
    return msgspec.msgpack.decode(protocol.encode_frame(sent)[4:], type=protocol.RpcRequest)


@pytest.mark.parametrize("name", CALLED)
def test_the_registry_handles_every_operation_with_its_response(name: str) -> None:
    hints = get_type_hints(getattr(ProcessRegistry, f"handle_{name}"))
    assert hints["request"] is OPERATIONS[name]
    assert hints["return"] == get_response_type(OPERATIONS[name])


@pytest.mark.parametrize("name", CALLED)
def test_the_client_handles_every_operation(name: str) -> None:
    assert callable(getattr(ProcessClient, f"handle_{name}"))


def test_a_method_takes_the_fields_of_its_request() -> None:
    seen: list[Operation[Any]] = []

    class Recorder(Processes):
        async def handle_read_log(self, request: ReadLog) -> None:
            seen.append(request)

        def stream(self, request: AttachOutput) -> AsyncGenerator[OutputChunk, None]:
            raise NotImplementedError

        async def aclose(self) -> None: ...

    asyncio.run(cast("Any", Recorder()).read_log("p1", owner="ada", tail=3))
    assert seen == [ReadLog("p1", owner="ada", tail=3)]


def test_requests_are_sent_as_names_and_values_that_protocol_3_knows() -> None:
    assert send(ReadLog("p1", tail=3)).method == "read_log"
    assert send(ReadLog("p1", tail=3)).arguments == {
        "id": "p1",
        "owner": None,
        "tail": 3,
        "offset": None,
        "limit": None,
        "since": None,
        "plain": True,
    }


def test_what_arrives_is_what_was_sent() -> None:
    start = StartProcess(("true",), owner="ada", env=os.environ, id="p1")
    arrived = decode_operation(send(start))
    lists = {"watches": [], "wrapper": []}
    assert arrived == StartProcess(["true"], owner="ada", env=dict(os.environ), id="p1", **lists)
    assert decode_operation(send(AckEvents(range(2)))) == AckEvents([0, 1])


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("no_such_method", {}),
        ("read_log", {}),
        ("read_log", {"id": 5}),
        ("read_log", {"id": "p1", "colour": "red"}),
        ("write", {"id": "p1", "data": 5}),
    ],
)
def test_an_invalid_request_is_refused(method: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=method):
        decode_operation(protocol.RpcRequest(1, method, arguments))
