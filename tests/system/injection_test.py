#!/usr/bin/env python3
"""A container that asks for the CDI device is injected, by real podman; others are not touched."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from gpuperf_system import WORKLOADS, Daemon, require_root, wait_until
from injector_workload import FAKES, INJECTOR, Workload, require_fakes

NO_PROBES = {"none_func_sym": {"nothing_has_this": "gpuperf_no_such_symbol"}}
DEVICE = ("--device", "gpuperf.dev/inject=all")
CDI = pathlib.Path("/var/run/cdi")  # podman 4 looks here and in /etc/cdi, and can be told nothing else
TOOLS = ("/usr/bin/env", "/usr/bin/ls", "/usr/bin/cat")


def list_libraries(*programs):
    """What the dynamic linker loads for them."""
    text = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    words = [word for line in text.splitlines() if line.startswith("\t") for word in line.split()]
    return {pathlib.Path(word) for word in words if word.startswith("/")}


def make_root(root):
    """The file system of a container with the workload, the fakes and little else."""
    files = {WORKLOADS / "injected", *map(pathlib.Path, TOOLS)}
    for path in files | list_libraries(*files, INJECTOR):
        target = root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copytree(FAKES, root / str(FAKES).lstrip("/"), dirs_exist_ok=True)
    for name in ("proc", "sys", "dev", "etc", "tmp", "run"):
        (root / name).mkdir(exist_ok=True)


class CdiTest(unittest.TestCase):
    def setUp(self):
        require_root()
        require_fakes()
        if shutil.which("podman") is None or shutil.which("runc") is None:
            self.skipTest("podman and runc are not installed")
        if any("gpuperf.dev/inject" in path.read_text(errors="replace")
               for folder in (CDI, pathlib.Path("/etc/cdi")) for path in folder.glob("*.json")):
            self.skipTest("another gpuperfd offers the CDI device on this host")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuperf-podman-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = self.folder / "root"
        make_root(self.root)
        result = self.run_once("/usr/bin/env")
        if result.returncode != 0:
            self.skipTest(f"podman cannot run containers here: {result.stderr.strip()[-300:]}")
        self.assertNotIn("CUDA_INJECTION64_PATH", result.stdout)
        self.spec = CDI / f"gpuperf-test-{os.getpid()}.json"
        self.addCleanup(self.spec.unlink, missing_ok=True)
        self.daemon = self.enterContext(Daemon({**NO_PROBES, "ingest": {"cdi_spec": str(self.spec)}}))
        self.daemon.wait_for_log("injection works", 60)

    def podman(self, *options):
        # What podman keeps is the test's own; limits as they are, where they cannot be raised.
        return ["podman", "--root", str(self.folder / "storage"), "--runroot", str(self.folder / "state"),
                "--runtime", "runc", "--cgroup-manager", "cgroupfs", "run", "--rm", "--interactive",
                "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
                "--env", f"LD_LIBRARY_PATH={FAKES / 'cupti_13'}", "--env", "GPUPERF_INIT_WAIT_MS=5000",
                *options, "--rootfs", f"{self.root}:O"]

    def run_once(self, *command, options=()):
        return subprocess.run([*self.podman(*options), *command], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, check=False)

    def start(self, *options):
        workload = self.enterContext(Workload("/outside", prefix=self.podman(*options)))
        workload.do("init")
        return workload

    def sessions(self):
        return [row for row in self.daemon.query("sessions", "list") if row["state"] == "collecting"]

    def test_a_container_that_asks_tells_of_its_kernels(self):
        workload = self.start(*DEVICE)
        (session,) = wait_until("the session", self.sessions, 60)
        self.assertEqual(session["comm"], "injected")
        workload.do("launch 10 1")
        wait_until("its kernels", lambda: sum(row["launches"] for row in self.daemon.query("kernels")) == 10, 60)
        self.assertEqual(workload.end(), 0)

    def test_one_that_does_not_ask_is_as_before(self):
        workload = self.start()
        workload.do("launch 10 1")
        self.assertEqual(workload.end(), 0)
        self.assertNotIn("session open", self.daemon.log())

    def test_a_container_sees_the_ingest_socket_alone_and_cannot_write(self):
        names = self.run_once("/usr/bin/ls", "/run/gpuperf", options=DEVICE)
        self.assertEqual(names.stdout.split(), ["ingest.sock"], names.stderr)
        mounts = self.run_once("/usr/bin/cat", "/proc/self/mounts", options=DEVICE)
        options = {line.split()[1]: line.split()[3].split(",") for line in mounts.stdout.splitlines()}
        for path in ("/run/gpuperf", "/usr/lib/gpuperf/libgpuperf_injector.so"):
            self.assertIn("ro", options[path])
            self.assertIn("nosuid", options[path])

    def test_a_running_container_finds_a_daemon_that_was_started_anew(self):
        self.start(*DEVICE)
        wait_until("the session", self.sessions, 60)
        self.daemon.stop()
        self.daemon.start()
        wait_until("the session with the next daemon", self.sessions, 60)

    def test_containers_start_while_the_daemon_is_away(self):
        self.daemon.stop()
        result = self.run_once("/usr/bin/env", options=DEVICE)
        self.assertIn("CUDA_INJECTION64_PATH=/usr/lib/gpuperf/libgpuperf_injector.so",
                      result.stdout.splitlines(), result.stderr)
        workload = self.start(*DEVICE)
        workload.do("launch 10 1")
        self.assertEqual(workload.end(), 0)

    def test_status_and_doctor_say_that_it_is_on(self):
        detail = f"{self.spec}: --device gpuperf.dev/inject=all"
        self.assertEqual(self.daemon.query("status")["injection_ways"],
                         [{"way": "cdi", "working": True, "detail": detail}])
        self.assertIn(f"cdi: {detail}", self.daemon.ctl("status").stdout)
        self.assertIn(f"containers are injected by cdi: {detail}",
                      self.daemon.ctl("doctor", check=False).stdout)


class FaultsTest(unittest.TestCase):
    """What keeps a way from working is said."""

    def setUp(self):
        require_root()
        if not INJECTOR.exists():
            self.skipTest("the injected library is not built: it needs the headers of CUPTI")

    def problems(self, **ingest):
        daemon = self.enterContext(Daemon({**NO_PROBES, "ingest": ingest}))
        return wait_until("a problem", lambda: [row["message"] for row in daemon.query("status")["problems"]
                                                if row["subject"] == "injection"])

    def test_a_library_that_is_not_there(self):
        (problem,) = self.problems(cdi_spec=str(CDI / "gpuperf-none.json"), injector_path="/no/such.so")
        self.assertTrue(problem.startswith("/no/such.so: No such file or directory; install it"), problem)

    def test_a_folder_that_is_not_there(self):
        self.assertEqual(self.problems(cdi_spec="/no/such/gpuperf.json"),
                         ["/no/such: make folder: No such file or directory"])

    def test_a_node_without_a_kubelet(self):
        self.assertEqual(self.problems(device_plugin=True, device_plugin_dir="/no/such"),
                         ["/no/such/kubelet.sock: no kubelet listens there"])

    def test_sessions_that_are_not_taken(self):
        self.assertEqual(self.problems(device_plugin=True, enabled=False),
                         ["gpuperfd accepts no sessions"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
