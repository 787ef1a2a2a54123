#!/usr/bin/env python3
"""Attaching to programs in containers, and to all of a container, of a pod or of a name."""

import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import unittest
import uuid

from attach_programs import attach, pid_of, workload
from gpuperf_system import BUILD, WORKLOADS, Cgroups, Daemon, SharedDaemonTest, require_root, wait_until
from injector_workload import require_fakes


OUTER_ROOT = 100_000  # who root of a container with a user namespace is outside


def setUpModule():
    require_root()
    require_fakes()


def show(rows):
    """{pid: state, or why not}"""
    return {int(row["pid"]): row["reason"] or row["state"] for row in rows}


class ManyTest(SharedDaemonTest):
    """All processes of a container, of a pod or of a name, one after another."""

    def setUp(self):
        self.cgroups = self.enterContext(Cgroups())

    def start(self, *, cgroup="other.service", comm="injected", **environment):
        """A program in that control group and of that name."""
        link = self.daemon.path / comm
        if not link.exists():
            link.symlink_to(WORKLOADS / "injected")
        group = self.cgroups.make(cgroup)
        enter = f'echo $$ > {group}/cgroup.procs && exec {link}'
        program = self.enterContext(workload(prefix=("sh", "-c", enter), **environment))
        program.do("init")
        return program

    def change(self, verb, *flags):
        """What became of each, and what gpuperfctl ended with."""
        result = self.daemon.ctl(verb, *flags, "-o", "json", check=False)
        return (show(json.loads(result.stdout)) if result.stdout else {}), result

    def check_quiet_end(self, *programs):
        for program in programs:
            self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_all_of_a_container(self):
        container = secrets.token_hex(32)
        group = f"docker-{container}.scope"
        programs = [self.start(cgroup=group), self.start(cgroup=group)]
        other = self.start(cgroup=f"docker-{secrets.token_hex(32)}.scope")
        pids = [pid_of(program) for program in programs]

        attached, result = self.change("attach", "--container", container[:8])
        self.assertEqual((attached, result.returncode, result.stderr), ({pid: "attached" for pid in pids}, 0, ""))
        listed = self.daemon.query("attach", "--list")
        self.assertEqual(show(listed) | {pid_of(other): "can"}, show(listed))
        self.assertEqual({row["container"] for row in listed if int(row["pid"]) in pids}, {container[:12]})
        again, result = self.change("attach", "--container", container[:12])
        self.assertEqual((again, result.returncode), ({}, 1))
        self.assertIn("every process that matches has the library already", result.stderr)

        detached, result = self.change("detach", "--container", container[:8])
        self.assertEqual((detached, result.returncode), ({pid: "can" for pid in pids}, 0))
        _, result = self.change("detach", "--container", container[:8])
        self.assertIn("no process that matches was attached to", result.stderr)
        self.check_quiet_end(*programs, other)

    def test_all_of_a_pod_of_which_one_is_refused(self):
        uid = str(uuid.uuid4())
        pod = f"kubepods.slice/kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        first = self.start(cgroup=f"{pod}/cri-containerd-{secrets.token_hex(32)}.scope")
        second = self.start(cgroup=f"{pod}/cri-containerd-{secrets.token_hex(32)}.scope", GPUPERF_DISABLE="1")
        third = self.start(cgroup=f"{pod}/crio-{secrets.token_hex(32)}.scope")

        result = self.daemon.ctl("attach", "--pod", uid, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("1 of 3 processes were not attached to", result.stderr)
        for program in (first, third):
            self.assertIn(f"Attached to process {pid_of(program)} (injected): held one thread for", result.stdout)
        self.assertIn(f"Process {pid_of(second)} (injected): not attached: its environment has GPUPERF_DISABLE. Next: ",
                      result.stdout)
        self.assertEqual({row["pod"] for row in self.daemon.query("attach", "--list", "--pod", uid)}, {uid})

        detached, result = self.change("detach", "--pod", uid)
        self.assertEqual((detached, result.returncode), ({pid_of(program): "can" for program in (first, third)}, 0))
        self.check_quiet_end(first, second, third)

    def test_all_of_a_name(self):
        trains = [self.start(comm="train-1"), self.start(comm="train-2")]
        serve = self.start(comm="serve")

        attached, result = self.change("attach", "--comm", "train-*")
        self.assertEqual((attached, result.returncode), ({pid_of(program): "attached" for program in trains}, 0))
        attached, result = self.change("attach", "--comm", "serve")
        self.assertEqual((attached, result.returncode), ({pid_of(serve): "attached"}, 0))
        detached, _ = self.change("detach", "--comm", "*-2")
        self.assertEqual(detached, {pid_of(trains[1]): "can"})
        # Both have to hold.
        _, result = self.change("detach", "--comm", "train-*", "--pid", pid_of(serve))
        self.assertIn("no process that uses CUDA matches", result.stderr)
        detached, _ = self.change("detach", "--comm", "*")
        self.assertEqual(detached, {pid_of(program): "can" for program in (trains[0], serve)})
        self.check_quiet_end(*trains, serve)

    def test_none(self):
        for flags in (("--comm", "train"), ("--container", "0" * 12), ("--pod", "no-such-pod")):
            for verb in ("attach", "detach"):
                with self.subTest(flags=flags, verb=verb):
                    changed, result = self.change(verb, *flags)
                    self.assertEqual((changed, result.returncode), ({}, 1))
                    self.assertIn("no process that uses CUDA matches: gpuperfctl attach --list", result.stderr)


class Container:
    """The program in a container of podman's: namespaces of its own, a read-only root without the library, no new privileges."""

    def __init__(self, folder, *flags):
        root = folder / "root"
        for name in ("proc", "sys", "dev", "tmp", "usr", "w", "run", "etc", "var/tmp"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            if not (root / name).is_symlink():
                (root / name).symlink_to(f"usr/{name}")
        if "--uidmap" in flags:  # its root makes the places of mounts
            for path, _, _ in os.walk(root):
                os.chown(path, OUTER_ROOT, OUTER_ROOT)
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
            daemon.path.chmod(0o711)  # the root of a user namespace looks up its folder
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

    def test_in_a_user_namespace(self):
        self.check(("--accept-seccomp",), "--uidmap", f"0:{OUTER_ROOT}:65536", "--gidmap", f"0:{OUTER_ROOT}:65536")

    @classmethod
    def setUpClass(cls):
        if shutil.which("podman") is None:
            raise unittest.SkipTest("podman is not installed")


if __name__ == "__main__":
    unittest.main()
