#!/usr/bin/env python3
"""Attaching to programs that run already, with the daemon: the library enters, records and leaves again, and the program goes
on as before, whoever dies meanwhile. On the fake driver and the fake CUPTI."""

import ctypes
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from gpuperf_system import AS_NOBODY, BUILD, LONG, Daemon, require_root, run_ctl, wait_until
from injector_workload import Workload, require_fakes

CYCLES = 1000 if LONG else 50
KILLS = 200 if LONG else 30
HELD_NS_MAX = 5_000_000  # what the issue allows; on a busy machine one is examined again


def setUpModule():
    require_root()
    require_fakes()


def workload(**environment):
    """A program without the library."""
    return Workload("/nonexistent", environment={"CUDA_INJECTION64_PATH": "", **environment})


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


def find_worker(daemon):
    """The process of the daemon's that attaches, once it takes requests; None where there is none."""
    for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
        try:
            children = (task / "children").read_text(encoding="ascii").split()
            for pid in children:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                comm = pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
                if words[0] == b"gpuperf-attach" and comm == "gpuperf-attach":
                    return int(pid)
        except OSError:
            continue
    return None


class AttachTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = cls.enterClassContext(Daemon({})) if hasattr(cls, "enterClassContext") else None

    def check_quiet_end(self, program):
        self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_a_running_program_has_kernels_within_two_seconds_and_none_after_detach(self):
        with workload(GPUPERF_END_AMONG_THREADS="1") as program:
            program.do("init")
            program.do("steady 2")
            began = time.monotonic()
            row = attach(self.daemon, program)
            self.assertEqual((row["state"], row["reason"]), ("attached", ""))
            wait_for_kernels(self.daemon, program)
            took = time.monotonic() - began
            session = session_of(self.daemon, program)
            self.assertEqual(session["attach_held_ns"], row["held_ns"])
            self.assertIn("gpuperf", program.threads())

            left = detach(self.daemon, program)
            self.assertEqual(left["state"], "can")
            # On a busy machine CUPTI may have recorded calls, and then stays.
            self.assertIn("CUPTI", left["detail"])
            self.assertNotIn("gpuperf", program.threads())
            self.assertEqual(program.state()["kinds"], 0)
            print(f"{left['detail']}; first kernel after {took:.2f} s; held {int(row['held_ns']) / 1e6:.2f} ms, "
                  f"{int(row['longest_hold_ns']) / 1e6:.2f} at a time; {left['kept_kib']} KiB stay", file=sys.stderr)
            self.assertLess(took, 2 * (1 if LONG else 5))
            program.do("halt")
            self.check_quiet_end(program)

    def test_no_kernel_is_missed_once_it_records_but_where_the_session_says_so(self):
        for threads in (1, 4):
            with self.subTest(threads=threads):
                self.check_nothing_is_missed_silently(threads)

    def check_nothing_is_missed_silently(self, threads):
        with workload() as program:
            program.do("init")
            program.do("launch 100 1")
            attach(self.daemon, program)
            def is_recording():
                program.do("launch 10 1")
                return launches_of(self.daemon, program)
            wait_until("it records", is_recording)
            def are_still():
                before = launches_of(self.daemon, program)
                time.sleep(0.7)
                return before == launches_of(self.daemon, program) and before
            def find_missed():
                session = session_of(self.daemon, program)
                return session["gaps"], session["losses"], session["state"]

            # Where the hooks cannot tell whose work is whose, recording begins anew, once: it is said.
            for _ in range(5):
                launches, missed = wait_until("nothing is under way", are_still), find_missed()
                program.do(f"launch {4000 // threads} {threads}")
                found = wait_until("nothing is under way", are_still) - launches
                time.sleep(1.5)  # the library says once a second what it missed
                if missed == find_missed() and missed[2] == "collecting":
                    break
                print(f"{4000 - found} missed, and said: {find_missed()}")
                time.sleep(3)
            self.assertEqual(found, 4000)
            detach(self.daemon, program)
            self.check_quiet_end(program)

    def test_graphs_from_before_are_never_traced_and_the_program_lives(self):
        with workload() as program:
            for line in ("init", "graph make early 20", "graph launch early 5"):
                program.do(line)
            attach(self.daemon, program)
            wait_for_state(self.daemon, program, "collecting")
            def is_said():
                program.do("graph launch early 2")
                return session_of(self.daemon, program)["cause"] == "graphs_unseen"
            wait_until("graphs are noticed", is_said)
            self.assertEqual(program.state()["kinds"] >> 51 & 1, 0)  # GRAPH_TRACE
            left = detach(self.daemon, program)
            self.assertIn("there are CUDA graphs", left["detail"])
            program.do("graph launch early 50")
            self.check_quiet_end(program)

    def test_many_cycles_leave_nothing_behind(self):
        with workload(GPUPERF_END_AMONG_THREADS="1") as program:
            program.do("init")
            program.do("steady 2 5")
            held = []
            for number in range(CYCLES):
                row = attach(self.daemon, program)
                self.assertEqual(row["state"], "attached", row)
                held.append(int(row["held_ns"]))
                left = detach(self.daemon, program)
                self.assertEqual(left["state"], "can", left)
                if number == 4:
                    before = held_by(program)
            after = held_by(program)
            done = program.do("halt")
            self.assertGreater(done["launches"], 0)
            held.sort()
            print(f"{CYCLES} cycles: held {held[len(held) // 2] / 1e6:.2f} ms in the middle, {held[-1] / 1e6:.2f} at most; "
                  f"from {before} to {after}; slowest 50 launches {done['slowest_ns'] / 1e6:.1f} ms", file=sys.stderr)
            self.assertEqual((after["fds"], after["threads"]), (before["fds"], before["threads"]))
            # The program's own heap grows meanwhile. A mapping a cycle would be dozens.
            self.assertLess(after["maps"], before["maps"] + 8)
            # The program keeps what it launched, some 300 bytes each.
            self.assertLess(after["private_kib"], before["private_kib"] + 2048 + done["launches"] // 2)
            self.check_quiet_end(program)

    def test_a_worker_killed_at_any_moment_leaves_the_program_alone(self):
        random_source = random.Random(7)
        attached = 0
        with workload(GPUPERF_END_AMONG_THREADS="1") as program:
            program.do("init")
            program.do("steady 2")
            launches = program.state()["steady_launches"]
            for _ in range(KILLS):
                # So that the next one is new, and its whole way can be cut off.
                if (old := find_worker(self.daemon)) is not None:
                    os.kill(old, signal.SIGKILL)
                asked = subprocess.Popen([*map(str, self.ctl_words("attach", "--pid", pid_of(program)))],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                deadline = time.monotonic() + 5
                worker = None
                while worker in (None, old) and time.monotonic() < deadline:
                    worker = find_worker(self.daemon)
                time.sleep(0.002 + random_source.uniform(0, 0.02))
                if worker is not None:
                    try:
                        os.kill(worker, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                asked.wait(60)
                now = wait_until("the program launches on", lambda: program.state()["steady_launches"] > launches
                                 and program.state()["steady_launches"])
                launches = now
                if "gpuperf" in program.threads():
                    attached += 1
                    wait_until("a worker is started again",
                               lambda: self.daemon.ctl("attach", "--list", check=False).returncode == 0)
                    row = detach(self.daemon, program)
                    self.assertEqual(row["state"], "can", row)
            print(f"{KILLS} workers killed, {attached} after the library had entered", file=sys.stderr)
            # Workers are not started for a moment after one has died before it could begin.
            wait_until("a worker is started again", lambda: self.daemon.ctl("attach", "--list", check=False).returncode == 0)
            self.assertEqual(attach(self.daemon, program)["state"], "attached")
            wait_for_kernels(self.daemon, program)
            self.assertGreater(program.do("halt")["launches"], 0)
            self.check_quiet_end(program)

    def ctl_words(self, *arguments):
        from gpuperf_system import GPUPERFCTL
        return (GPUPERFCTL, "--address", f"unix:{self.daemon.socket}", *arguments)

    def test_a_program_killed_meanwhile_is_reported_as_gone(self):
        for wait_s in (0, 0.005, 0.02, 0.05):
            with workload() as program:
                program.do("init")
                program.do("steady 2")
                asked = subprocess.Popen([*map(str, self.ctl_words("attach", "--pid", pid_of(program)))],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(wait_s)
                program.process.kill()
                asked.wait(60)
        self.assertEqual(self.daemon.query("status")["version"] != "", True)

    def test_waiting_calls_are_not_disturbed(self):
        """Every thread of it waits in another call; none notices that it was stopped."""
        script = ("import ctypes, select, socket, threading, time, os, signal, sys\n"
                  "ctypes.CDLL('libcuda.so.1')\n"
                  "results = []\n"
                  "def sleep():\n"
                  "    began = time.monotonic(); time.sleep(2); results.append(2 <= time.monotonic() - began < 3)\n"
                  "def poll():\n"
                  "    began = time.monotonic(); results.append(select.poll().poll(2000) == [] and time.monotonic() - began >= 2)\n"
                  "def receive():\n"
                  "    a, b = socket.socketpair(); threading.Timer(2, lambda: b.send(b'x')).start(); results.append(a.recv(1) == b'x')\n"
                  "def wait():\n"
                  "    event = threading.Event(); results.append(event.wait(2) is False)\n"
                  "threads = [threading.Thread(target=f) for f in (sleep, poll, receive, wait)]\n"
                  "[t.start() for t in threads]\n"
                  "print('ready', flush=True)\n"
                  "[t.join() for t in threads]\n"
                  "print(results, flush=True)\n"
                  "sys.stdin.readline()\n")
        from injector_workload import FAKES
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{FAKES}:{FAKES / 'cupti_13'}"}
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=environment) as program:
            try:
                self.assertEqual(program.stdout.readline(), "ready\n")
                for _ in range(5):
                    self.assertEqual(attach(self.daemon, program.pid)["state"], "attached")
                    self.assertEqual(attach(self.daemon, program.pid, verb="detach")["state"], "can")
                self.assertEqual(program.stdout.readline(), "[True, True, True, True]\n")
            finally:
                program.kill()

    def test_it_goes_on_through_forks_and_a_storm_of_threads(self):
        with workload() as program:
            program.do("init")
            program.do("steady 2")
            for _ in range(5):
                # A child that launches could find the driver's lock held by another thread, here as on a GPU.
                program.post("fork quiet")
                self.assertEqual(attach(self.daemon, program)["state"], "attached")
                program.answer()
                program.post("launch 1 300")
                self.assertEqual(detach(self.daemon, program)["state"], "can")
                program.answer()
            program.do("halt")
            self.check_quiet_end(program)


if not hasattr(unittest.TestCase, "enterClassContext"):
    def set_up_daemon(cls):
        cls.daemon = Daemon({}).start()
        cls.addClassCleanup(lambda: cls.daemon.__exit__(None))

    AttachTest.setUpClass = classmethod(set_up_daemon)


class RestartTest(unittest.TestCase):
    def test_a_new_daemon_finds_attached_programs_again_without_stopping_a_thread(self):
        with Daemon({}) as daemon, workload() as program:
            program.do("init")
            program.do("steady 2")
            row = attach(daemon, program)
            for how in (signal.SIGKILL, signal.SIGTERM):
                wait_for_kernels(daemon, program)
                daemon.stop(how)
                daemon.start()
                session = wait_until("the session", lambda: session_of(daemon, program))
                self.assertEqual(session["attach_held_ns"], row["held_ns"])
            wait_for_kernels(daemon, program)
            self.assertEqual(detach(daemon, program)["state"], "can")
            program.do("halt")
            self.assertEqual((program.end(), program.noise()), (0, ""))


class RefusalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon({}).start()
        cls.addClassCleanup(lambda: cls.daemon.__exit__(None))

    def check_refused(self, program, reason, *flags, verb="attach"):
        row = attach(self.daemon, program, *flags, verb=verb)
        self.assertEqual((row["state"], row["reason"]), ("cannot", reason), row)
        self.assertNotEqual(row["detail"], "")
        print(f"{reason}: {row['detail']} | {row['hint']}", file=sys.stderr)
        return row

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
        with workload() as program:
            program.do("init")
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
            self.assertEqual(libc.ptrace(0x4206, pid_of(program), None, None), 0)  # PTRACE_SEIZE
            self.check_refused(program, "traced")
            self.assertEqual(libc.ptrace(0x4207, pid_of(program), None, None), 0)  # PTRACE_INTERRUPT
            os.waitpid(pid_of(program), 0x40000000)
            self.assertEqual(libc.ptrace(17, pid_of(program), None, None), 0)  # PTRACE_DETACH
            self.assertEqual(attach(self.daemon, program)["state"], "attached")
            self.assertEqual(program.end(), 0)

    def test_one_under_a_seccomp_filter_unless_that_is_accepted(self):
        # Allows everything.
        code = ("import ctypes, os, struct, sys\n"
                "libc = ctypes.CDLL(None)\n"
                "filter = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n"
                "program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(filter)))\n"
                "assert libc.prctl(38, 1, 0, 0, 0) == 0\n"
                "assert libc.prctl(22, 2, program) == 0\n"
                "os.execv(sys.argv[1], sys.argv[1:])\n")
        with Workload("/nonexistent", environment={"CUDA_INJECTION64_PATH": ""},
                      prefix=(sys.executable, "-c", code)) as program:
            program.do("init")
            self.check_refused(program, "seccomp")
            self.assertEqual(attach(self.daemon, program, "--accept-seccomp")["state"], "attached")
            self.assertEqual(program.end(), 0)

    def test_a_static_program(self):
        if shutil.which("gcc") is None:
            self.skipTest("needs gcc")
        path = self.daemon.path / "static"
        built = subprocess.run(["gcc", "-static", "-x", "c", "-o", path, "-"], check=False, capture_output=True, text=True,
                               input="#include <unistd.h>\nint main() { pause(); }\n")
        if built.returncode != 0:
            self.skipTest(f"no static C library: {built.stderr}")
        with subprocess.Popen([path]) as program:
            time.sleep(0.2)
            self.check_refused(program.pid, "static")
            program.kill()

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
        from injector_workload import FAKES
        script = ("import ctypes, os, sys\n"
                  "ctypes.CDLL('libcuda.so.1')\n"
                  "print('ready', flush=True)\n"
                  "sys.stdin.readline()\n"
                  "child = os.fork()\n"
                  "print(child, flush=True) if child else None\n"
                  "sys.stdin.readline()\n")
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{FAKES}:{FAKES / 'cupti_13'}"}
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=environment) as program:
            self.assertEqual(program.stdout.readline(), "ready\n")
            self.assertEqual(attach(self.daemon, program.pid)["state"], "attached")
            program.stdin.write("\n")
            program.stdin.flush()
            child = int(program.stdout.readline())
            try:
                self.check_refused(child, "forked")
                self.assertEqual(attach(self.daemon, program.pid)["reason"], "attached")
            finally:
                os.kill(child, signal.SIGKILL)
                program.kill()

    def test_users_other_than_root(self):
        self.daemon.path.chmod(0o755)
        self.daemon.socket.chmod(0o666)
        result = run_ctl("--address", f"unix:{self.daemon.socket}", "attach", "--list", check=False, prefix=AS_NOBODY)
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("only root", result.stderr)

    def test_the_list_says_how_each_process_is(self):
        with workload() as one, workload() as other, Workload(self.daemon.path / "run/ingest.sock") as third:
            for program in (one, other, third):
                program.do("init")
            attach(self.daemon, one)
            rows = {int(row["pid"]): row["state"] for row in self.daemon.query("attach", "--list")}
            self.assertEqual([rows[pid_of(program)] for program in (one, other, third)],
                             ["attached", "can", "injected"])


class Container:
    """The program in a container of podman's: namespaces of its own, a read-only root without the library, no new privileges."""

    def __init__(self, folder, *flags):
        root = folder / "root"
        for name in ("proc", "sys", "dev", "tmp", "usr", "w", "run", "etc", "var"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            if not (root / name).is_symlink():
                (root / name).symlink_to(f"usr/{name}")
        self.process = subprocess.Popen(
            ["podman", "run", "--rm", "-i", "--network", "none", "--read-only", "--security-opt", "no-new-privileges",
             "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", *flags, "-v", "/usr:/usr:ro",
             "-v", f"{BUILD}/tests:/w:ro", "-e", "LD_LIBRARY_PATH=/w/fakes/cupti:/w/fakes/cupti/cupti_13",
             "--rootfs", root, "/w/workloads/injected"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def do(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def find_pid(self):
        ours = os.stat("/proc/self/ns/pid").st_ino
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "comm").read_text(encoding="ascii") == "injected\n" and (folder / "ns/pid").stat().st_ino != ours:
                    return int(folder.name)
            except OSError:
                continue
        raise AssertionError("no such process")


class ContainerTest(unittest.TestCase):
    def check(self, accepted, *flags):
        with Daemon({}) as daemon:
            container = Container(daemon.path, *flags)
            try:
                if not container.do("init"):
                    self.skipTest(f"podman starts no container here: {container.process.stderr.read()[-300:]}")
                container.do("steady 2")
                pid = container.find_pid()
                if accepted:
                    self.assertEqual(attach(daemon, pid)["reason"], "seccomp")
                row = attach(daemon, pid, *accepted)
                self.assertEqual(row["state"], "attached", row)
                self.assertNotEqual(row["container"], "")
                wait_until("kernels", lambda: daemon.query("kernels", "--pid", pid))
                self.assertEqual(attach(daemon, pid, verb="detach")["state"], "can")
                print(f"container {flags}: held {int(row['held_ns']) / 1e6:.2f} ms", file=sys.stderr)
                self.assertGreater(json.loads(container.do("halt"))["launches"], 0)
                container.process.stdin.write("quit exit\n")
                container.process.stdin.flush()
                self.assertEqual((container.process.wait(20), container.process.stderr.read()), (0, ""))
            finally:
                container.process.kill()
                container.process.communicate()

    def test_with_the_seccomp_filter_of_the_runtime(self):
        self.check(("--accept-seccomp",))

    def test_without_one(self):
        self.check((), "--security-opt", "seccomp=unconfined")

    @classmethod
    def setUpClass(cls):
        if shutil.which("podman") is None:
            raise unittest.SkipTest("podman is not installed")


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
