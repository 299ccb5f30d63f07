"""Restrict this process with Landlock and seccomp, then execute a command.

It does what landlock_launcher.pl does, for systems without Perl, and takes the same words. It loads few
modules of the standard library, because every command waits for them: json, platform and typing would
double its start, and ctypes itself takes longer than `_ctypes`, which does the work of it.
"""

import _ctypes
import os
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_MIN_VERSION = 6  # the first that keeps signals inside
_FILE_RIGHTS = 0xC007  # that apply to a file
_SIGPIPE, _SIGXFSZ = 13, 25


class _Long(_ctypes._SimpleCData):  # pyright: ignore  # generic only for checkers
    _type_ = "l"


class _Byte(_ctypes._SimpleCData):  # pyright: ignore  # generic only for checkers
    _type_ = "B"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


def _find_function(name: str) -> _Function:
    return _Function(_ctypes.dlsym(_ctypes.dlopen(None, os.RTLD_NOW), name))  # pyright: ignore


_syscall, _signal = _find_function("syscall"), _find_function("signal")


def _call_kernel(number: int, *arguments: int | bytes | None) -> int:
    words = (_Long(one) if isinstance(one, int) else one for one in arguments)
    result = _syscall(_Long(number), *words)
    if result < 0:
        code = _ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def _drop_capabilities(prctl: int, capset: int) -> None:
    for number in range(64):
        try:
            _call_kernel(prctl, 24, number, 0, 0, 0)
        except OSError:
            continue  # no right to it, or beyond the last
    _call_kernel(capset, struct.pack("Ii", 0x20080522, 0), bytes(24))


def _restrict_files(attributes: bytes, rules: list[str]) -> None:
    version = _call_kernel(_CREATE_RULESET, None, 0, 1)
    if version < _MIN_VERSION:
        raise ValueError(f"the kernel's Landlock is version {version}, {_MIN_VERSION} is needed")
    ruleset = _call_kernel(_CREATE_RULESET, attributes, len(attributes), 0)
    for rights, path in zip(map(int, rules[::2]), rules[1::2], strict=True):
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        _call_kernel(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, fd), 0)
        os.close(fd)
    _call_kernel(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _restrict_calls(seccomp: int, data: bytes) -> None:
    buffer = (_Byte * len(data)).from_buffer_copy(data)
    program = struct.pack("HxxxxxxP", len(data) // 8, _ctypes.addressof(buffer))
    _call_kernel(seccomp, 1, 0, program)


def restrict_process(words: list[str]) -> list[str]:
    """Restrict this process for good, as the words say; return the command after them."""
    calls, attributes, filter_program, count, *rest = words
    if not calls:
        raise ValueError(f"no system call filter for {count}")
    prctl, capset, _, _, seccomp = map(int, calls.split(","))
    end = 2 * int(count)
    if end >= len(rest) or rest[end] != "--":
        raise ValueError("the policy is incomplete")
    _call_kernel(prctl, 38, 1, 0, 0, 0)  # no new privileges
    _drop_capabilities(prctl, capset)
    _restrict_files(bytes.fromhex(attributes), rest[:end])
    _restrict_calls(seccomp, bytes.fromhex(filter_program))
    return rest[end + 1 :]


def main() -> None:
    try:
        command = restrict_process(sys.argv[1:])
        for ignored in (_SIGPIPE, _SIGXFSZ):  # by Python, and so by a command that it executes
            _signal(ignored, None)
        if command:
            os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{getattr(error, 'strerror', None) or error}\n")
        sys.exit(126)


if __name__ == "__main__":
    main()
