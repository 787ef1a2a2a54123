#!/usr/bin/env python3
"""Programs that are not attached to, and daemons that may not attach: each reason, read where it is shown."""

import errno
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from attach_programs import attach, filtered, folder_of, held_by, pid_of, python_program, session_of, workload
from gpuperf_system import AS_NOBODY, Daemon, SharedDaemonTest, require_root, run_ctl, wait_until
from injector_workload import Workload, require_fakes


def setUpModule():
    require_root()
    require_fakes()


def check_refused(case, daemon, program, reason, verb="attach"):
    """The row with that reason; it is written where people who run the test see it."""
    row = attach(daemon, program, verb=verb)
    case.assertEqual((row["state"], row["reason"]), ("cannot", reason), row)
    case.assertNotEqual(row["detail"], "")
    print(f"{reason}: {row['detail']} | {row['hint']}", file=sys.stderr)
    return row


class RefusalTest(SharedDaemonTest):
    def check_refused(self, program, reason, verb="attach"):
        return check_refused(self, self.daemon, program, reason, verb)

    def check_program_refused(self, path, reason):
        with subprocess.Popen([path]) as program:
            try:
                wait_until("it runs", lambda: (pathlib.Path(f"/proc/{program.pid}/exe").resolve() == path))
                self.check_refused(program.pid, reason)
            finally:
                program.kill()

    def test_a_program_without_cuda(self):
        with subprocess.Popen(["sleep", "60"]) as program:
            time.sleep(0.2)
            self.check_refused(program.pid, "no_cuda")
            program.kill()

    def test_a_process_that_is_not_there(self):
        self.check_refused(2**22 - 1, "gone")

    def test_one_that_has_it_already(self):
        with Workload(self.daemon.path / "run/ingest.sock") as program:
            program.do("init")
            self.check_refused(program, "injected")
            self.check_refused(program, "not_attached", verb="detach")
            self.assertEqual(program.end(), 0)
        with workload() as program:
            program.do("init")
            attach(self.daemon, program)
            self.check_refused(program, "attached")
            self.assertEqual(program.end(), 0)

    def test_one_that_asked_not_to(self):
        with workload(GPUPERF_DISABLE="1") as program:
            program.do("init")
            self.check_refused(program, "disabled")
            self.assertEqual(program.end(), 0)

    def test_one_that_is_traced(self):
        for tracer in (["strace", "-f", "-o", "/dev/null", "-p"], ["gdb", "-q", "-nx", "-p"]):
            with self.subTest(tracer=tracer[0]):
                if shutil.which(tracer[0]) is None:
                    self.skipTest(f"{tracer[0]} is not installed")
                self.check_traced(tracer)

    def check_traced(self, tracer):
        with workload() as program:
            program.do("init")
            status = folder_of(program) / "status"
            with subprocess.Popen([*tracer, str(pid_of(program))], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as other:
                try:
                    wait_until("it is traced", lambda: f"TracerPid:\t{other.pid}\n" in status.read_text(encoding="utf-8"))
                    self.assertIn(str(other.pid), self.check_refused(program, "traced")["detail"])
                finally:
                    other.terminate()
                    other.stdin.close()  # gdb lets go at the end of its commands
            self.assertEqual(attach(self.daemon, program)["state"], "attached")
            self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_one_under_a_seccomp_filter_unless_that_is_accepted(self):
        with workload(prefix=filtered({})) as program:
            program.do("init")
            self.check_refused(program, "seccomp")
            self.assertEqual(attach(self.daemon, program, "--accept-seccomp")["state"], "attached")
            self.assertEqual(program.end(), 0)

    def build(self, name, *command, source="#include <unistd.h>\nint main() { pause(); }\n"):
        """The program that a compiler makes of the source; skips where it is missing or fails."""
        if shutil.which(command[0]) is None:
            self.skipTest(f"needs {command[0]}")
        path = self.daemon.path / name
        built = subprocess.run([*command, "-o", path, "-"], check=False, capture_output=True, text=True, input=source)
        if built.returncode != 0:
            self.skipTest(f"{command} fails: {built.stderr}")
        return path

    def test_a_static_program(self):
        self.check_program_refused(self.build("static", "gcc", "-static", "-x", "c"), "static")

    def test_a_program_with_another_c_library(self):
        self.check_program_refused(self.build("musl", "musl-gcc", "-x", "c"), "musl")

    def test_a_program_of_another_architecture(self):
        pause = ".globl _start\n_start: mov $29, %eax\n int $0x80\n jmp _start\n"
        code = self.build("i386.o", "as", "--32", source=pause)
        path = self.daemon.path / "i386"
        subprocess.run(["ld", "-m", "elf_i386", "-o", path, code], check=True)
        try:
            self.check_program_refused(path, "architecture")
        except OSError as error:
            self.skipTest(f"this kernel runs no 32-bit programs: {error}")

    def test_a_program_that_has_few_descriptors_left_keeps_all_it_had(self):
        with workload() as program:
            program.do("init")
            folder = folder_of(program) / "fd"
            def list_open():
                return {number: os.readlink(folder / number) for number in os.listdir(folder)}
            before = list_open()
            for room in range(5):  # for the pair of sockets, the library and the block: one after another is missing
                limit = max(map(int, before)) + 1 + room
                resource.prlimit(pid_of(program), resource.RLIMIT_NOFILE, (limit, 4096))
                row = attach(self.daemon, program)
                if room < 4:
                    self.assertEqual((row["state"], list_open()), ("cannot", before), row)
            program.do("launch 10 1")
            self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_a_fork_of_one_that_was_attached_to(self):
        script = ("import ctypes, os, sys\n"
                  "ctypes.CDLL('libcuda.so.1')\n"
                  "print('ready', flush=True)\n"
                  "sys.stdin.readline()\n"
                  "child = os.fork()\n"
                  "print(child, flush=True) if child else None\n"
                  "sys.stdin.readline()\n")
        with python_program(script) as program:
            self.assertEqual(attach(self.daemon, program.pid)["state"], "attached")
            program.stdin.write("\n")
            program.stdin.flush()
            child = int(program.stdout.readline())
            try:
                self.check_refused(child, "forked")
                self.assertEqual(attach(self.daemon, program.pid)["reason"], "attached")
            finally:
                os.kill(child, signal.SIGKILL)

    def test_users_other_than_root(self):
        self.daemon.path.chmod(0o755)
        self.daemon.socket.chmod(0o666)
        result = run_ctl("--address", f"unix:{self.daemon.socket}", "attach", "--list", check=False, prefix=AS_NOBODY)
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("only root", result.stderr)

    def test_the_list_says_how_each_process_is(self):
        with (workload() as one, workload() as other, Workload(self.daemon.path / "run/ingest.sock") as third,
              workload(prefix=filtered({})) as fourth):
            programs = (one, other, third, fourth)
            for program in programs:
                program.do("init")
            attach(self.daemon, one)
            rows = {int(row["pid"]): row["state"] for row in self.daemon.query("attach", "--list")}
            self.assertEqual([rows[pid_of(program)] for program in programs], ["attached", "can", "injected", "cannot"])

            doctor = self.daemon.ctl("doctor", check=False).stdout
            for program, text in zip(programs, ("was attached to: one thread was held for", "can be attached to",
                                                "was injected at its start",
                                                "cannot be attached to: a seccomp filter limits its system calls")):
                self.assertIn(f"process {pid_of(program)} (injected) {text}", " ".join(doctor.split()))
            wait_until("its session is shown", lambda: session_of(self.daemon, one))
            with_library, _, without = self.daemon.ctl("sessions").stdout.partition("without the library")
            for table, program, text in ((with_library, one, "attached: held a thread"), (without, other, "can"),
                                         (with_library, third, "from its start"), (without, fourth, "cannot")):
                self.assertRegex(table, rf"(?m)^ *{pid_of(program)} +injected .*\b{text}\b")


class MissingRightTest(unittest.TestCase):
    """A daemon that lacks one right says which, and leaves the program as it was."""

    def check(self, prefix, reason, *names):
        with Daemon({}, prefix=prefix) as daemon, workload() as program:
            program.do("init")
            program.do("steady 2")
            before = held_by(program)
            row = check_refused(self, daemon, program, reason)
            for name in names:
                self.assertIn(name, row["detail"])
            after = held_by(program)
            self.assertEqual([after[key] for key in ("fds", "threads")], [before[key] for key in ("fds", "threads")])
            self.assertGreater(program.do("halt")["launches"], 0)
            self.assertEqual((program.end(), program.noise()), (0, ""))
            return daemon.ctl("attach", "--list", check=False)

    def test_the_capability(self):
        listed = self.check(("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", "--"), "not_permitted",
                            "gpuperfd lacks CAP_SYS_PTRACE")
        self.assertNotEqual(listed.returncode, 0)
        self.assertIn("gpuperfd lacks CAP_SYS_PTRACE", listed.stderr)

    def test_a_system_call(self):
        for name, number in (("ptrace", 101), ("process_vm_writev", 311), ("pidfd_getfd", 438)):
            with self.subTest(call=name):
                listed = self.check(filtered({number: errno.EPERM}), "not_permitted", f"{name}: ", "seccomp filter")
                self.assertEqual(listed.returncode, 0)

    def test_a_kernel_before_5_6(self):
        for name, number in (("pidfd_open", 434), ("pidfd_getfd", 438)):
            with self.subTest(call=name):
                self.check(filtered({number: errno.ENOSYS}), "old_kernel", name)


class ForbiddenTest(unittest.TestCase):
    def test_the_setting_forbids_it(self):
        with Daemon({"sessions": {"attach": False}}) as daemon, workload() as program:
            program.do("init")
            result = daemon.ctl("attach", "--pid", pid_of(program), check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("sessions.attach is false", result.stderr)
            self.assertEqual((program.end(), program.noise()), (0, ""))


if __name__ == "__main__":
    unittest.main()
