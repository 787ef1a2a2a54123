#!/usr/bin/env python3
"""Attaching to programs in containers, and to all of a container, of a pod or of a name."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from attach_programs import attach
from gpuperf_system import BUILD, Daemon, require_root, wait_until
from injector_workload import require_fakes


def setUpModule():
    require_root()
    require_fakes()


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


if __name__ == "__main__":
    unittest.main()
