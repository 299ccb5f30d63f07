"""Serves one model on loopback until its input is closed; runs in the engine's environment."""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import sys
from pathlib import Path

import xllamacpp


def main(asked: str) -> None:
    wanted = json.loads(asked)
    params = xllamacpp.CommonParams()
    params.model.path = wanted["model"]
    params.model_alias = {wanted["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = wanted["port"]
    params.n_ctx = wanted["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = wanted["threads"]
    params.cpuparams_batch.n_threads = wanted["threads"]
    params.use_jinja = True
    params.chat_template = Path(__file__).with_name("chat.jinja").read_text()
    params.cache_prompt = True  # an agent repeatedly sends the same prefix
    params.cache_ram_mib = 2048  # the prefixes of several arms, not just the last one
    params.ui = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
