"""Ways past a filter that leaves calls to a tracer; prints what became of each. Numbers are those of this machine."""
import ctypes
import errno
import json
import platform
import struct

ARM = platform.machine() == "aarch64"
SECCOMP, CLONE, PTRACE, KEYCTL = (277, 220, 117, 219) if ARM else (317, 56, 101, 250)
IO_URING_SETUP = 425
C = ctypes.CDLL(None, use_errno=True)


def call(number, *args):
    ctypes.set_errno(0)
    result = C.syscall(ctypes.c_long(number), *[ctypes.c_long(arg) for arg in args])
    if result == 0 and number == CLONE:
        C._exit(0)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "done"


# A filter that asks its listener about io_uring_setup, and lets the rest pass.
instructions = [(0x20, 0, 0, 0), (0x15, 0, 1, IO_URING_SETUP), (0x06, 0, 0, 0x7FC00000), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in instructions))
program = ctypes.create_string_buffer(struct.pack("=H6xQ", len(instructions), ctypes.addressof(code)))

print(
    json.dumps(
        {
            "listener": call(SECCOMP, 1, 8, ctypes.addressof(program)),
            "untraced": call(CLONE, 0x00800000 | 17, 0, 0, 0, 0),
            "ptrace": call(PTRACE, 0, 0, 0, 0),
            "io_uring": call(IO_URING_SETUP, 1, 0),
            "keyring": call(KEYCTL, 0, 0, 0, 0, 0),
        }
    )
)
