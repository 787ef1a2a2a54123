#!/usr/bin/env python3
"""Findings 15 and 16: workers of the daemon, which files and processes of others may take over or hold up."""

import os
import pathlib
import re
import unittest

from bed import CONFIG
from gpuperf_system import Daemon, require_root, start_workload, wait_until

SECRET_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
SECRET = "authorization=Bearer 4d1c0bf2a7"
IDLE_S = 5  # of the worker that reads DWARF


def list_children(pid):
    """(name, state, pid) of each."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, state, parent = re.match(r"\d+ \((.*)\) (\S) (\d+)", path.read_text(encoding="utf-8")).groups()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid:
            found.append((name, state, int(path.parent.name)))
    return found


def read_memory(pid):
    """All that it may write to."""
    content = b""
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
            words = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if words:
                begin, end = (int(word, 16) for word in words.groups())
                memory.seek(begin)
                content += memory.read(end - begin)
    return content


class WorkersTest(unittest.TestCase):
    def setUp(self):
        require_root()
        # The daemon's own: a worker may well read the environment of a workload.
        os.environ[SECRET_VARIABLE] = SECRET
        try:
            self.daemon = Daemon(CONFIG).start()
        finally:
            del os.environ[SECRET_VARIABLE]
        self.addCleanup(lambda: self.daemon.__exit__(None))

    def start_calls(self):
        """Slow enough to be seen in flight; the stacks of calls that have returned are named by DWARF."""
        workload = start_workload("slow_calls", "--requests", "1000", "--duration-ms", "1500")
        for cleanup in (workload.wait, workload.stdout.close, workload.kill):
            self.addCleanup(cleanup)
        return workload

    def wait_for_worker(self, role):
        """Its pid."""
        def find():
            return [pid for name, state, pid in list_children(self.daemon.process.pid) if name == role and state != "Z"]
        return wait_until(role, find)[0]

    def test_16_workers_hold_nothing_of_the_daemons(self):
        tokens = [path.read_bytes().strip() for path in (self.daemon.path / "run").glob("*.token")]
        self.assertEqual(len(tokens), 2)
        self.start_calls()

        for role in ("gpuperf-dwarf", "gpuperf-memory", "gpuperf-files"):
            pid = self.wait_for_worker(role)
            folder = pathlib.Path(f"/proc/{pid}")
            files = {int(path.name): os.readlink(path) for path in (folder / "fd").iterdir()}
            memory = read_memory(pid)
            self.assertEqual((folder / "environ").read_bytes(), b"")
            self.assertEqual([files.pop(fd).split("[")[0] for fd in range(4)], [*["/dev/null"] * 3, "socket:"])
            for sent in files.values():  # with a request, to be read
                self.assertTrue(sent.endswith((".debug", ".so.6", "slow_calls")), sent)
            for secret in (*tokens, SECRET.encode()):
                self.assertFalse(secret in memory, role)

    def test_15_a_worker_that_has_ended_is_no_zombie(self):
        workload = self.start_calls()
        dwarf = self.wait_for_worker("gpuperf-dwarf")
        workload.kill()

        wait_until("the idle worker is gone", lambda: not os.path.exists(f"/proc/{dwarf}"), IDLE_S + 5)

        wait_until("no zombie", lambda: all(state != "Z" for _, state, _ in list_children(self.daemon.process.pid)), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
