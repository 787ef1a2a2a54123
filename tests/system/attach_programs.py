"""What the tests of attaching share: programs without the library, and what gpuperfctl says of them."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

from gpuperf_system import wait_until
from injector_workload import FAKES, Workload

# Puts a seccomp filter on itself, [[system call, answer]...], and becomes the program.
FILTERED = """
import ctypes, json, os, struct, sys
steps = [(0x20, 0, 0, 0)]
for number, answer in json.loads(sys.argv[1]):
    steps += [(0x15, 0, 1, number), (6, 0, 0, answer)]
steps.append((6, 0, 0, 0x7fff0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"""


def filtered(answers):
    """What starts a program under a seccomp filter: {system call: errno} are answered so, all others allowed."""
    return (sys.executable, "-c", FILTERED, json.dumps([[number, 0x50000 | error] for number, error in answers.items()]))


def workload(prefix=(), **environment):
    """A program without the library."""
    return Workload("/nonexistent", environment={"CUDA_INJECTION64_PATH": "", **environment}, prefix=prefix)


@contextlib.contextmanager
def python_program(script):
    """A Python program that has loaded the CUDA driver and said "ready"; it is killed in the end."""
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{FAKES}:{FAKES / 'cupti_13'}"}
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=environment) as program:
        try:
            if (line := program.stdout.readline()) != "ready\n":
                raise AssertionError(f"the program said {line!r}")
            yield program
        finally:
            program.kill()


def pid_of(program):
    return program.process.pid


def folder_of(program):
    return pathlib.Path(f"/proc/{pid_of(program)}")


def held_by(program):
    """What a process has that could leak."""
    maps = (folder_of(program) / "maps").read_text(encoding="utf-8").splitlines()
    status = (folder_of(program) / "status").read_text(encoding="utf-8")
    private_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
    return {"fds": len(os.listdir(folder_of(program) / "fd")), "threads": len(os.listdir(folder_of(program) / "task")),
            "maps": len(maps), "private_kib": private_kib}


def attach(daemon, program, *flags, verb="attach"):
    """The row that comes back, whether it was refused or not."""
    pid = program if isinstance(program, int) else pid_of(program)
    result = daemon.ctl(verb, "--pid", pid, *flags, "-o", "json", check=False)
    if not result.stdout:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)[0]


def attach_when_free(daemon, program, tries):
    """Attaches, again where the program got no CPU within the 50 ms that a thread is held, or where what an earlier attach
    began has not ended: the last row, and what the others said."""
    late = []
    while (row := attach(daemon, program))["reason"] in ("failed", "no_safe_thread") and len(late) < tries:
        late.append(row["detail"])
    return row, late


def detach(daemon, program):
    return attach(daemon, program, verb="detach")


def session_of(daemon, program):
    rows = daemon.query("sessions", "--pid", pid_of(program))
    return rows[0] if rows else None


def launches_of(daemon, program):
    return sum(int(row["launches"]) for row in daemon.query("kernels", "--pid", pid_of(program)))


def wait_for_state(daemon, program, state):
    wait_until(state, lambda: (session_of(daemon, program) or {}).get("state") == state)


def wait_for_kernels(daemon, program):
    return wait_until("kernels", lambda: launches_of(daemon, program))
