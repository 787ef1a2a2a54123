#!/usr/bin/env python3
"""Finding 1: processes of nobody's of which nothing can be read, nor the read be ended: a FUSE server of his backs them."""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from bed import CONFIG, MAX_CONTROL_S, AttackTest, as_nobody
from gpuperf_system import NOBODY, SOURCE, WORKLOADS, wait_until

PROGRAM = SOURCE / "tests/security/stuck_stack.py"
OTHER_LIBRARY = "libharm_other.so"
THREADS = 8
STACK_BYTES = 1 << 20
MS_NOSUID, MS_NODEV, MNT_FORCE, MNT_DETACH = 2, 4, 1, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def tell(process):
    process.stdin.write("go on\n")
    process.stdin.flush()


def is_held(pid):
    """Whether a look at the process's environment does not return: by a child, which can be killed."""
    look = subprocess.Popen(["/bin/cat", f"/proc/{pid}/environ"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        look.wait(1)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        look.kill()
        look.wait()


class StuckReadTest(AttackTest):
    CONFIG = {"custom_sym": CONFIG["custom_sym"] | {"harm_call": {"symbol": "harm_call", "slow_threshold_ms": 5}},
              "libraries": {"custom_sym": ["slow_calls", "libharm_target.so"]}}

    def setUp(self):
        if not os.path.exists("/dev/fuse"):
            self.skipTest("no /dev/fuse")
        self.mounted = []
        super().setUp()
        self.folder = self.make_open_folder()
        self.addCleanup(self.end_attack)  # before the folder is removed, in which file systems are mounted
        self.library = shutil.copy(WORKLOADS / "libharm_target.so", self.folder)
        self.program = shutil.copy(PROGRAM, self.folder)
        self.stuck_reads = 0
        self.dropped = threading.Event()

    def mount(self, failures=0):
        """A file system of nobody's, served by a process of his; nobody else may open files there."""
        path = pathlib.Path(tempfile.mkdtemp(prefix="mounted-", dir=self.folder))
        device = os.open("/dev/fuse", os.O_RDWR)
        try:
            options = f"fd={device},rootmode=40000,user_id={NOBODY},group_id={NOBODY}"
            if LIBC.mount(b"stuck", str(path).encode(), b"fuse", MS_NOSUID | MS_NODEV, options.encode()) != 0:
                self.skipTest(f"mount: {os.strerror(ctypes.get_errno())}")
            self.mounted.append(path)
            server = as_nobody("/usr/bin/python3", self.program, "serve", device, THREADS * STACK_BYTES, failures,
                               pass_fds=[device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        finally:
            os.close(device)
        self.add_attacker(server)
        return path, server

    def end_attack(self):
        for path in self.mounted:
            self.abort(path)  # first of all: then nothing waits any more
        super().end_attack()
        for path in self.mounted:
            LIBC.umount2(str(path).encode(), MNT_FORCE | MNT_DETACH)
        self.mounted = []

    def abort(self, path):
        """Fails every request of the file system, answered or not."""
        device = next(line.split()[2] for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
                      if line.split()[4] == str(path))
        control = self.folder / "control"
        control.mkdir(exist_ok=True)
        LIBC.mount(b"none", str(control).encode(), b"fusectl", 0, None)
        try:
            (control / device.split(":")[1] / "abort").write_text("1", encoding="ascii")
        except FileNotFoundError:
            pass  # its server has ended
        LIBC.umount2(str(control).encode(), MNT_DETACH)

    def count_reads(self, server):
        for line in server.stdout:
            if line == "dropped\n":
                self.dropped.set()
            else:
                self.stuck_reads += 1

    def attack(self, _):
        self.dropped.clear()
        path, server = self.mount()
        sitter = self.add_attacker(as_nobody("/usr/bin/python3", self.program, "sit", self.library, path / "stack", THREADS,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        self.assertEqual(sitter.stdout.readline(), "loaded\n")
        self.daemon.wait_attached("harm_call")
        tell(sitter)
        self.assertEqual(sitter.stdout.readline(), "sits\n")
        threading.Thread(target=self.count_reads, args=(server,), daemon=True).start()
        tell(server)
        self.assertTrue(self.dropped.wait(10))

    def test_1_memory_that_is_never_delivered_stops_nobody_else(self):
        self.check_attack(self.attack, seconds=6)

        drops = self.get_drops()
        self.assertGreater(self.stuck_reads, 0)  # the attack is one
        self.assertGreater(drops["memory_late"], 0)
        self.check_aftermath(self.attack)

    def hold_lock(self):
        """Of the memory of a process that has just been seen for the first time. It is let go before the daemon stops:
        the kernel takes that lock as well to take probes out of what the process has mapped."""
        path, server = self.mount(failures=1)
        other = pathlib.Path(shutil.copy(self.library, self.folder / OTHER_LIBRARY))
        holder = self.add_attacker(as_nobody("/usr/bin/python3", self.program, "hold", self.library, path / "stack", other,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        self.assertEqual(holder.stdout.readline(), "loaded\n")
        self.daemon.wait_attached("harm_call")
        other.unlink()  # from now on it is found in the memory of the process only
        threading.Thread(target=self.count_reads, args=(server,), daemon=True).start()
        tell(server)
        self.assertTrue(self.dropped.wait(10))
        tell(holder)
        self.assertEqual(holder.stdout.readline(), "holds\n")
        wait_until("a lock that is not let go", lambda: is_held(holder.pid))

    def look_for(self, library):
        """In all processes, from now on."""
        settings = self.daemon.settings
        settings["libraries"]["custom_sym"].append(library)
        self.daemon.config.write_text(json.dumps(settings), encoding="utf-8")
        self.daemon.ctl("config", "reload")

    def count_calls(self):
        return self.daemon.functions()["slow_sleep"]["calls"]

    def get_drops(self):
        return {row["reason"]: int(row["count"]) for row in self.daemon.query("status")["drops"]}

    def test_1_a_lock_that_is_never_let_go_stops_nobody_else(self):
        counted = []

        def attack(_):
            self.hold_lock()
            time.sleep(2)  # whoever waits for it does so by now
            counted.append(self.count_calls())
        self.check_attack(attack, seconds=6)

        self.assertGreater(self.count_calls(), counted[0])  # of the honest process
        drops = self.get_drops()
        self.assertGreater(drops.get("memory_late", 0) + drops.get("process_late", 0), 0)

    def test_1_a_library_that_only_such_a_process_has_is_put_off(self):
        self.hold_lock()
        self.look_for(OTHER_LIBRARY)
        orders_s = []
        end = time.monotonic() + 6  # in which the process is looked at several times
        while time.monotonic() < end:
            begin = time.monotonic()
            self.daemon.ctl("probes", "threshold", "harm_call", "5ms")
            orders_s.append(time.monotonic() - begin)

        print(json.dumps({"orders": len(orders_s), "longest s": max(orders_s)}))
        self.assertGreater(self.get_drops().get("process_late", 0), 0)
        self.assertFalse([row for row in self.daemon.query("probes") if row["library"].endswith(OTHER_LIBRARY)])
        self.assertLess(max(orders_s), MAX_CONTROL_S)


if __name__ == "__main__":
    unittest.main(verbosity=2)
