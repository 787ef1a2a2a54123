#!/usr/bin/env python3
"""A gRPC client that knows nothing of gpuperf (buf curl) lists and reads the API by reflection."""

import json
import pathlib
import os
import shutil
import subprocess
import unittest

from gpuperf_system import BUILD, COUNT_LIBRARY, Daemon, require_root

BUF = pathlib.Path(os.environ.get("GPUPERF_BUF", BUILD / "npm/node_modules/.bin/buf"))


def setUpModule():
    require_root()
    if not BUF.exists() or shutil.which("node") is None:
        raise unittest.SkipTest(f"buf is not installed in {BUF} (tests/run.sh installs it by npm)")


class ReflectionTest(unittest.TestCase):
    def curl(self, daemon, *arguments):
        result = subprocess.run(
            [BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", "--unix-socket",
             daemon.socket, "--reflect", *arguments],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_lists_and_reads_the_api(self):
        config = {"custom_sym": {"count_fast": "count_fast"},
                  "libraries": COUNT_LIBRARY}
        with Daemon(config) as daemon:
            daemon.wait_attached("count_fast")

            services = self.curl(daemon, "--list-services", "http://localhost").split()
            self.assertIn("gpuperf.v1.Observe", services)
            self.assertIn("grpc.health.v1.Health", services)
            methods = self.curl(daemon, "--list-methods", "http://localhost").split()
            self.assertIn("gpuperf.v1.Observe/WatchSlowCalls", methods)
            probes = json.loads(self.curl(daemon, "http://localhost/gpuperf.v1.Observe/ListProbes"))
            self.assertEqual(probes["probes"][0]["state"], "PROBE_STATE_ATTACHED")
            health = json.loads(self.curl(daemon, "http://localhost/grpc.health.v1.Health/Check"))
            self.assertEqual(health["status"], "SERVING")


if __name__ == "__main__":
    unittest.main(verbosity=2)
