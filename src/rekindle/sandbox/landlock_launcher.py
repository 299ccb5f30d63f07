"""Restrict this process with Landlock and seccomp, then execute a command.

It runs with few modules of the standard library, because every command waits for them: json, platform
and typing would double its start, and ctypes itself takes longer than `_ctypes`, which does the work of
it. Its words are `NETWORK READ WRITE DEVICES PATH… -- COMMAND…`: whether
there is a network (1 or 0), the number of paths of each kind, and the paths; or `probe`. Landlock limits
files, signals and TCP; seccomp refuses sockets, and the calls that reach other processes or get around
a filter. Every failure ends the program before the command runs.
"""

import _ctypes
import os
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _SECCOMP = (
    444,
    445,
    446,
    {"x86_64": 317, "aarch64": 277},
)
MIN_ABI = 6  # the first that keeps signals inside
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_FILE_RIGHTS = (1 << 16) - 1  # up to ABI 5
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15  # that apply to a file
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# Calls that reach other processes or the kernel's inside, by name: (x86_64, aarch64).
_REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "init_module": (175, 105), "finit_module": (313, 273),
    "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224), "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265), "pidfd_getfd": (438, 438), "fsopen": (430, 430),
    "open_tree": (428, 428), "move_mount": (429, 429), "mount_setattr": (442, 442),
    "settimeofday": (170, 170), "clock_settime": (227, 112), "sethostname": (170, 161),
    "acct": (163, 89), "quotactl": (179, 60), "kcmp": (312, 272), 
    # Landlock does not limit these: they would reach every file that the user owns.
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466), "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1),
    "file_setattr": (469, 469),
}  # fmt: skip
_SOCKET = (41, 198)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


class _Long(_ctypes._SimpleCData):  # pyright: ignore  # generic only for checkers
    _type_ = "l"


class _Byte(_ctypes._SimpleCData):  # pyright: ignore  # generic only for checkers
    _type_ = "B"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


def _find_function(name: str) -> _Function:
    return _Function(_ctypes.dlsym(_ctypes.dlopen(None, os.RTLD_NOW), name))  # pyright: ignore


_syscall, _prctl, _capset = (_find_function(name) for name in ("syscall", "prctl", "capset"))


class Policy:
    """The paths that a command may read, write and use as devices, and whether it has a network."""

    def __init__(
        self, network: bool, read: list[str], write: list[str], devices: list[str]
    ) -> None:
        self.network = network
        self.read = read
        self.write = write
        self.devices = devices


def _call_kernel(number: int, *arguments: int | bytes | None) -> int:
    words = (_Long(one) if isinstance(one, int) else one for one in arguments)
    result = _syscall(_Long(number), *words)
    if result < 0:
        code = _ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def _restrict_files(policy: Policy) -> None:
    abi = _call_kernel(_CREATE_RULESET, None, 0, 1)
    if abi < MIN_ABI:
        raise OSError(_ENOSYS, f"the kernel's Landlock is version {abi}, {MIN_ABI} is needed")
    network = 0 if policy.network else _BIND_TCP | _CONNECT_TCP
    attributes = struct.pack(
        "QQQ", _ALL_FILE_RIGHTS, network, _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS
    )
    ruleset = _call_kernel(_CREATE_RULESET, attributes, len(attributes), 0)
    for path in policy.read:
        _add_path(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in policy.write:
        _add_path(ruleset, path, _ALL_FILE_RIGHTS & ~(1 << 11 | 1 << 6))  # no device nodes
    for path in policy.devices:
        _add_path(ruleset, path, _READ_FILE | _WRITE_FILE | 1 << 15)
    _call_kernel(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _add_path(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        rights &= _FILE_RIGHTS
    rule = struct.pack("=Qi", rights, fd)
    _call_kernel(_ADD_RULE, ruleset, 1, rule, 0)
    os.close(fd)


def _drop_capabilities() -> None:
    for number in range(64):
        _prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP; fails without the right, or beyond the last
    header, data = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *([0] * 6))
    if _capset(header, data) != 0:
        raise OSError(_ctypes.get_errno(), "the capabilities cannot be dropped")


def _restrict_calls(network: bool) -> None:
    machine = os.uname().machine if hasattr(os, "uname") else ""
    if machine not in _AUDIT_ARCH:
        raise OSError(_ENOSYS, f"no system call filter for {machine}")
    column = 0 if machine == "x86_64" else 1
    families = (_AF_INET, _AF_INET6, _AF_NETLINK) if network else ()
    refuse, allow = (0x06, 0, 0, _ERRNO | _EPERM), (0x06, 0, 0, _ALLOW)
    program = [
        (0x20, 0, 0, 4),  # the architecture
        (0x15, 1, 0, _AUDIT_ARCH[machine]),
        (0x06, 0, 0, _ERRNO | _ENOSYS),
        (0x20, 0, 0, 0),  # the number of the call
    ]
    if machine == "x86_64":  # the x32 variants have their own numbers
        program += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, _ERRNO | _ENOSYS)]
    # clone3 passes its flags in memory, which a filter cannot read: libraries fall back to clone.
    program += [(0x15, 0, 1, 435), (0x06, 0, 0, _ERRNO | _ENOSYS)]
    for numbers in _REFUSED.values():
        if numbers[column] >= 0:
            program += [(0x15, 0, 1, numbers[column]), refuse]
    clone = (56, 220)[column]
    program += [(0x15, 0, 4, clone), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E020000), refuse, allow]
    # The time of an open file may change, that of a path may not.
    program += [(0x15, 0, 6, (280, 88)[column]), (0x20, 0, 0, 24), (0x15, 0, 2, 0)]
    program += [(0x20, 0, 0, 28), (0x15, 1, 0, 0), refuse, allow]
    ioctl = (16, 29)[column]  # TIOCSTI and TIOCLINUX type into a terminal
    program += [
        (0x15, 0, 5, ioctl),
        (0x20, 0, 0, 24),
        (0x15, 1, 0, 0x5412),
        (0x15, 0, 1, 0x541C),
        refuse,
        allow,
    ]
    program += [(0x15, 0, 2 + len(families) * 2, _SOCKET[column]), (0x20, 0, 0, 16)]
    for family in families:
        program += [(0x15, 0, 1, family), allow]
    program += [refuse, allow]
    data = b"".join(struct.pack("HBBI", *one) for one in program)
    buffer = (_Byte * len(data)).from_buffer_copy(data)
    filter_program = struct.pack("HxxxxxxP", len(program), _ctypes.addressof(buffer))
    _call_kernel(_SECCOMP[machine], 1, 0, filter_program)


def restrict_process(policy: Policy) -> None:
    """Restrict this process for good."""
    if _prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        raise OSError(_ctypes.get_errno(), "no_new_privs cannot be set")
    _drop_capabilities()
    _restrict_files(policy)
    _restrict_calls(policy.network)


def split_words(words: list[str]) -> tuple[Policy, list[str]]:
    """Split the words of the launcher into the policy and the command."""
    read, write, devices = map(int, words[1:4])
    paths, rest = words[4:], read + write + devices
    if rest >= len(paths) or paths[rest] != "--" or words[0] not in ("0", "1"):
        raise ValueError("the policy is incomplete")
    policy = Policy(
        words[0] == "1", paths[:read], paths[read : read + write], paths[read + write : rest]
    )
    return policy, paths[rest + 1 :]


def main() -> None:
    try:
        if sys.argv[1] == "probe":
            restrict_process(Policy(False, ["/usr"], [], []))
            return
        policy, command = split_words(sys.argv[1:])
        restrict_process(policy)
        os.execvp(command[0], command)
    except (OSError, ValueError, IndexError) as error:
        sys.stderr.write(f"{getattr(error, 'strerror', None) or error}\n")
        sys.exit(126)


if __name__ == "__main__":
    main()
