#!/usr/bin/env python3
"""docs/tour.md, as a new user would try it: every line of every block, as written, in one shell."""

import os
import pathlib
import re
import shutil
import subprocess
import time
import unittest

from gpuperf_system import SOURCE, require_root

TOUR = SOURCE / "docs/tour.md"
RESULTS = SOURCE / ".quickstart"
LIMIT_SECONDS = 1500  # the first block builds what is not built yet


class TourTest(unittest.TestCase):
    def setUp(self):
        require_root()
        shutil.rmtree(RESULTS, ignore_errors=True)

    def kill_what_is_left(self):
        environment = RESULTS / "env"
        pid = re.search(r"GPUPERFD_PID=(\d+)", environment.read_text(encoding="utf-8")) if environment.exists() else None
        if pid and pathlib.Path(f"/proc/{pid[1]}").exists():
            os.kill(int(pid[1]), 15)

    def test_every_line_works_as_written(self):
        self.addCleanup(self.kill_what_is_left)
        blocks = re.findall(r"^```sh\n(.*?)^```", TOUR.read_text(encoding="utf-8"), re.M | re.S)
        # Each line is said before it runs; the first that fails ends the tour.
        script = "set -e\n" + "\n".join(f"set -v\n{block}\nset +v" for block in blocks)
        begin = time.monotonic()

        run = subprocess.run(["bash"], input=script, cwd=SOURCE, text=True, timeout=LIMIT_SECONDS,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

        self.assertEqual(run.returncode, 0, run.stdout[-4000:])
        for shown in ("probes", "cudaMalloc", "Slow call ", "gpuperf_function_calls_total{", " failed"):
            self.assertIn(shown, run.stdout)
        self.assertIn("</svg>", (RESULTS / "now.svg").read_text(encoding="utf-8"))
        self.assertIn("</html>", (RESULTS / "tour.html").read_text(encoding="utf-8"))
        runtime = re.search(r"GPUPERF_RUNTIME_DIR=(\S+)", (RESULTS / "env").read_text(encoding="utf-8"))[1]
        self.assertFalse(pathlib.Path(runtime).exists())
        print(f"the tour took {time.monotonic() - begin:.0f} s, building included")


if __name__ == "__main__":
    unittest.main(verbosity=2)
