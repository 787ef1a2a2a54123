#!/usr/bin/env python3
"""gpuperfctl demo: a recorded decode to look at, without a GPU, without a running gpuperfd and without rights."""

import json
import os
import pathlib
import re
import signal
import subprocess
import unittest
import urllib.request

from gpuperf_system import AS_NOBODY, GPUPERFCTL, wait_until

AS_USER = AS_NOBODY if os.geteuid() == 0 else ()


def demo(*command):
    return subprocess.run([*AS_USER, GPUPERFCTL, "demo", "--", *command], check=False, capture_output=True, text=True,
                          timeout=120)


def list_folders():
    return set(pathlib.Path("/tmp").glob("gpuperf-demo-*"))


class DemoTest(unittest.TestCase):
    def test_runs_one_command(self):
        before = list_folders()
        lines = demo("kernels", "--by", "line", "--capture", "2", "-o", "json")
        kernels = demo("kernels", "--by", "kernel", "--capture", "2")
        failed = demo("trace", "show", "99")

        self.assertEqual(lines.returncode, 0, lines.stderr)
        self.assertIn("Mlp.forward", lines.stdout)
        self.assertIn("direct_copy_kernel_cuda(BFloat16)", kernels.stdout)
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertEqual(list_folders(), before)

    def test_names_of_kernels_are_short_and_distinct(self):
        rows = json.loads(demo("kernels", "--by", "kernel", "--capture", "2", "-o", "json").stdout)
        table = demo("kernels", "--by", "kernel", "--capture", "2").stdout
        names = [line.split(None, 9)[9] for line in table.splitlines()[1:1 + len(rows)]]

        self.assertEqual(len(rows), 36)
        self.assertEqual(len(set(names)), len(rows), table)
        self.assertLessEqual(max(map(len, names)), 160, table)
        self.assertIn("MeanOps", table)

    def test_stays_for_a_browser_and_a_shell_until_interrupted(self):
        before = list_folders()
        with subprocess.Popen([*AS_USER, GPUPERFCTL, "demo"], stdout=subprocess.PIPE, text=True) as process:
            text = ""
            while "Ctrl-C" not in text:
                line = process.stdout.readline()
                self.assertTrue(line, text)
                text += line
            address = re.search(r"GPUPERF_ADDRESS=(\S+)", text)[1]
            page = re.search(r"http://\S+", text)[0]
            shown = subprocess.run([GPUPERFCTL, "--address", address, "trace", "list", "-o", "json"], check=True,
                                   capture_output=True, text=True).stdout
            with urllib.request.urlopen(page, timeout=10) as answer:
                self.assertEqual(answer.status, 200)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(30), 0)

        self.assertEqual([row["id"] for row in json.loads(shown)], [2])
        wait_until("the folder is gone", lambda: list_folders() == before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
