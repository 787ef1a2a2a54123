#!/usr/bin/env python3
"""Calls made in containers: each counted once, and under the right container."""

import os
import pathlib
import secrets
import shutil
import subprocess
import tempfile
import unittest

from gpuperf_system import (WORKLOADS, Cgroups, Daemon, find_cgroup_root, finish_workload, get_calls, require_root,
                            wait_until)

FUNCTIONS = ("count_fast", "count_status", "count_nested")
CONFIG = {"custom_sym": {name: name for name in FUNCTIONS},
          # As the containers see it; there is no such path outside.
          "libraries": {"custom_sym": ["/app/libcount_target.so"]},
          "slow": {"default_threshold_ms": 0}}
CONTAINERS = 8
POD_UID = "0d2a9e1b-7c3f-4b5e-9a8d-6f1e2c3b4a59"

# Runs in namespaces of its own: what a container runtime does, as far as gpuperf can tell.
START = """
set -e
echo $$ > "$CGROUP/cgroup.procs"
exec unshare --mount --pid --fork --kill-child sh -ec '
  mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$OWN/upper,workdir=$OWN/work" "$OWN/root"
  for folder in usr shared; do mount --rbind "$BELOW/$folder" "$OWN/root/$folder"; done
  mount -t proc proc "$OWN/root/proc"
  [ -z "$COPY_UP" ] || chmod 700 "$OWN/root/app/libcount_target.so"
  cd "$OWN/root"
  mkdir old
  pivot_root . old
  exec chroot . /usr/bin/sh -ec "umount -l /old; exec /app/count_calls \"\$@\"" sh "$@"' sh "$@"
"""


def check_overlay(folder):
    """Skips where overlays cannot be mounted, which containers on most hosts consist of."""
    for name in ("lower", "upper", "work", "root"):
        (folder / name).mkdir()
    command = ("mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root")
    result = subprocess.run(["unshare", "--mount", "sh", "-c", command], cwd=folder,
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise unittest.SkipTest(f"no overlay mounts in namespaces here: {result.stderr.strip()}")


def setUpModule():
    require_root()
    find_cgroup_root()
    with tempfile.TemporaryDirectory(prefix="gpuperf-overlay-") as folder:
        check_overlay(pathlib.Path(folder))


class ContainersTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuperf-containers-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.cgroups = self.enterContext(Cgroups())
        (self.folder / "shared").mkdir()
        self.go = self.folder / "shared/go"
        # The image: one layer that every container has below its own.
        self.image = self.folder / "image"
        for name in ("app", "usr", "proc", "shared"):
            (self.image / name).mkdir(parents=True)
        for name in ("lib", "lib64", "bin"):
            source = pathlib.Path("/") / name
            if source.is_symlink():
                (self.image / name).symlink_to(os.readlink(source))
        for name in ("count_calls", "libcount_target.so"):
            shutil.copy(WORKLOADS / name, self.image / "app")

    def start_container(self, cgroup_path, *arguments, copy_up=False, env=None):
        """count_calls in a container; ended with the test."""
        own = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        for name in ("upper", "work", "root"):
            (own / name).mkdir()
        below = own / "below"  # what is bound into the container
        below.mkdir()
        (below / "usr").symlink_to("/usr")
        (below / "shared").symlink_to(self.folder / "shared")
        variables = {"CGROUP": self.cgroups.make(cgroup_path), "LOWER": self.image, "OWN": own,
                     "BELOW": below, "COPY_UP": "yes" if copy_up else ""}
        process = subprocess.Popen(
            ["sh", "-c", START, "sh", *map(str, arguments)], stdout=subprocess.PIPE, text=True,
            env=os.environ | (env or {}) | {name: str(value) for name, value in variables.items()})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_until_mapped(self, count):
        """`count` processes have mapped the library, at the path it has inside."""
        def mapped():
            found = 0
            for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
                try:
                    found += "/app/libcount_target.so" in maps.read_text()
                except OSError:
                    pass  # gone
            return found == count
        wait_until(f"{count} containers map the library", mapped)

    def wait_for_calls(self, daemon, containers):
        """{container: {function: calls}} once it is as expected, or as last seen."""
        seen = {}

        def match():
            for container in containers:
                rows = daemon.functions("--container", container)
                seen[container] = {name: row["calls"] for name, row in rows.items()}
            return seen == containers
        try:
            wait_until("the expected counts", match, 10)
        except AssertionError:
            pass  # the caller compares, and shows both sides
        return seen

    def test_eight_containers_count_each_call_once_in_the_right_one(self):
        ids = [secrets.token_hex(32) for _ in range(CONTAINERS)]
        with Daemon(CONFIG) as daemon:
            processes = [self.start_container(f"docker-{container}.scope",
                                              "--calls", 1000 + 100 * index, "--threads", 2,
                                              "--wait-for-file", "/shared/go",
                                              copy_up=index == CONTAINERS - 1)
                         for index, container in enumerate(ids)]
            self.wait_until_mapped(CONTAINERS)
            # Seven share the file of the image; the eighth changed it and has a copy of its own.
            wait_until("both files are probed",
                       lambda: daemon.query("status")["files"] == 2 and
                       daemon.attached(*FUNCTIONS))
            self.go.touch()
            truths = [finish_workload(process)[0] for process in processes]

            expected = {container[:12]: get_calls(truth) for container, truth in zip(ids, truths)}
            self.assertEqual(self.wait_for_calls(daemon, expected), expected)
            self.assertEqual({name: row["calls"] for name, row in daemon.functions().items()},
                             {name: sum(calls[name] for calls in expected.values())
                              for name in FUNCTIONS})
            self.assertEqual(len(daemon.query("processes")), CONTAINERS)

    def test_a_container_gone_at_once_is_known(self):
        container = secrets.token_hex(32)
        with Daemon(CONFIG) as daemon:
            first = self.start_container("first.service", "--calls", 10,
                                         "--wait-for-file", "/shared/go")
            daemon.wait_attached(*FUNCTIONS)
            self.go.touch()
            finish_workload(first)

            (truth,) = finish_workload(
                self.start_container(f"docker-{container}.scope", "--calls", 3))

            expected = {container[:12]: get_calls(truth)}
            self.assertEqual(self.wait_for_calls(daemon, expected), expected)

    def test_pods_and_slurm_jobs_are_named(self):
        container = secrets.token_hex(32)
        pod = f"kubepods-burstable-pod{POD_UID.replace('-', '_')}.slice"
        with Daemon(CONFIG) as daemon:
            process = self.start_container(
                f"kubepods.slice/{pod}/cri-containerd-{container}.scope", "--calls", 10,
                "--wait-for-file", "/shared/go", "--linger-for-file", "/shared/stop",
                env={"SLURM_JOB_ID": "4711", "SLURM_PROCID": "3"})
            daemon.wait_attached(*FUNCTIONS)
            self.go.touch()

            # While it lives: the job stands in its environment only.
            (row,) = wait_until("the process is seen", lambda: daemon.query("processes"))
            (self.folder / "shared/stop").touch()
            (truth,) = finish_workload(process)

            self.assertEqual((row["container"], row["pod"]), (container[:12], POD_UID))
            self.assertEqual((row["slurm_job"], row["slurm_rank"]), ("4711", "3"))
            expected = {container[:12]: get_calls(truth)}
            self.assertEqual(self.wait_for_calls(daemon, expected), expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
