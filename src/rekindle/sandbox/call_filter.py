"""Compile the seccomp filter of the Landlock sandbox.

It refuses sockets, and the calls that reach other processes, get around a filter, or change files in
ways that Landlock does not limit.
"""

from __future__ import annotations

import struct
from functools import cache

_AF_INET, _AF_INET6, _AF_NETLINK = 2, 10, 16
_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # the kernel's names of architectures
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
    "settimeofday": (164, 170), "clock_settime": (227, 112), "sethostname": (170, 161),
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


@cache
def compile_filter(machine: str, *, network: bool) -> bytes:
    """Return the filter's instructions. With `network`, sockets of the internet are allowed."""
    column = 0 if machine == "x86_64" else 1
    families = (_AF_INET, _AF_INET6, _AF_NETLINK) if network else ()
    refuse, allow = (0x06, 0, 0, _ERRNO | _EPERM), (0x06, 0, 0, _ALLOW)
    program = [
        (0x20, 0, 0, 4),  # the architecture
        (0x15, 1, 0, MACHINES[machine]),
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
    return b"".join(struct.pack("HBBI", *one) for one in program)
