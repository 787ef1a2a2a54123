#!/usr/bin/env python3
"""Frames of the Pythons of several Debian releases are named as each names them itself."""

import os
import subprocess
import unittest

import python_roots
from gpuperf_system import BUILD

LIVE_TEST = [BUILD / "tests/unit/unit_test", "--gtest_filter=*PythonLiveTest*"]


class PythonVersionsTest(unittest.TestCase):
    def test_every_python_that_can_be_had(self):
        pythons = python_roots.prepare_all(BUILD / "python_roots")
        if not pythons:
            self.skipTest("no other Python can be had; why stands above")
        lines = "\n".join(f"{name} {command}" for name, command in pythons)
        result = subprocess.run(LIVE_TEST, env=os.environ | {"GPUPERF_PYTHONS": lines}, capture_output=True,
                                text=True, timeout=600)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for name, _ in pythons:
            self.assertIn(f"NamesEveryFrameAsPythonDoes/{name}", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
