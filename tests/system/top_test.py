#!/usr/bin/env python3
"""gpuperfctl top as a full screen, in a terminal of 80 and of 200 columns: sorted, filtered, drilled into, left."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unittest

from gpuperf_system import COUNT_LIBRARY, GPUPERFCTL, PATIENCE, Daemon, require_root, start_workload

FUNCTIONS = ("count_fast", "count_status", "count_nested")
CONFIG = {"custom_sym": {name: name for name in FUNCTIONS}, "libraries": COUNT_LIBRARY}
CLEAR = "\x1b[H\x1b[2J"


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, columns, *command):
        self.fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.modes = termios.tcgetattr(inner)
        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "LANG": "C.UTF-8"})
        self.inner = inner
        self.text = ""

    def read(self, seconds):
        end = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            self.text += os.read(self.fd, 65536).decode("utf-8", "replace")

    def screen(self):
        return self.text.split(CLEAR)[-1].replace("\r", "")

    def table(self):
        """The functions: what stands between the first empty line and the next."""
        return self.screen().split("\n\n")[1]

    def wait_for(self, pattern, seconds=20):
        end = time.monotonic() + seconds * PATIENCE
        while not re.search(pattern, self.screen(), re.MULTILINE):
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.screen()}"
            self.read(0.1)
        return self.screen()

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.fd)
        os.close(self.inner)


class TopTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_root()
        cls.daemon = Daemon(CONFIG).start()
        cls.addClassCleanup(cls.daemon.folder.cleanup)
        cls.addClassCleanup(cls.daemon.stop)
        cls.workload = start_workload("count_calls", "--calls", 100_000_000, "--spin-ns", 20_000)
        cls.addClassCleanup(cls.workload.communicate)
        cls.addClassCleanup(cls.workload.kill)
        cls.daemon.wait_attached(*FUNCTIONS)

    def open(self, columns):
        terminal = Terminal(columns, GPUPERFCTL, "--address", f"unix:{self.daemon.socket}", "top", "--watch=0.3")
        self.addCleanup(terminal.close)
        return terminal

    def check_leaves(self, terminal):
        terminal.press("q")
        self.assertEqual(terminal.process.wait(10), 0)
        terminal.read(0.2)
        self.assertTrue(terminal.text.endswith("\x1b[?25h\x1b[?1049l"), terminal.text[-100:])
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.modes)

    def test_fits_its_terminal_and_leaves_it_as_it_was(self):
        for columns in (80, 200):
            terminal = self.open(columns)
            screen = terminal.wait_for(r"^> *(custom +)?count_")

            self.assertTrue(terminal.text.startswith("\x1b[?1049h\x1b[?25l"))
            self.assertRegex(screen, "AVG +P99 ")
            self.assertEqual("CATEGORY" in terminal.table(), columns == 200)
            lines = screen.splitlines()
            self.assertLessEqual(len(lines), 24, screen)
            self.assertLessEqual(max(map(len, lines)), columns, screen)
            self.check_leaves(terminal)

    def test_sorts_filters_and_drills_down(self):
        terminal = self.open(80)
        terminal.wait_for(r"^> *count_")
        terminal.press("s")
        terminal.wait_for(r"sort: calls")
        terminal.press("/nested")
        terminal.wait_for(r"^Filter: nested_")
        terminal.press("\r")
        terminal.wait_for(r"/ filter: nested")
        self.assertNotIn("count_fast", terminal.table())
        terminal.press("\r")
        terminal.wait_for(rf"^ *{self.workload.pid} +count_c")
        self.assertIn("count_nested (custom), by process", terminal.screen())
        terminal.press("\x1b")
        terminal.wait_for(r"^> *count_nested")
        terminal.press("\x1b")
        terminal.wait_for(r"count_fast .*%")
        self.check_leaves(terminal)

    def test_an_interrupt_leaves_the_terminal_as_it_was(self):
        terminal = self.open(80)
        terminal.wait_for(r"^> *count_")
        terminal.process.send_signal(2)

        self.assertEqual(terminal.process.wait(10), 0)
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.modes)

    def test_says_why_when_the_daemon_ends(self):
        with Daemon({"none_func_sym": {"nothing_has_this": "gpuperf_no_such_symbol"}}) as daemon:
            terminal = Terminal(80, GPUPERFCTL, "--address", f"unix:{daemon.socket}", "top", "--watch=0.3")
            self.addCleanup(terminal.close)
            terminal.wait_for(r"No probed function was called")
        terminal.process.wait(20)
        terminal.read(0.2)

        self.assertEqual(terminal.process.returncode, 3)
        self.assertIn("\x1b[?1049lgpuperfctl: ", terminal.text.replace("\r\n", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
