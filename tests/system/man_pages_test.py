#!/usr/bin/env python3
"""The man pages that the build makes: without fault, and complete."""

import json
import os
import re
import shutil
import subprocess
import unittest

from gpuperf_system import BUILD, GPUPERFCTL, SOURCE

PAGES = ("gpuperfd.8", "gpuperfctl.1", "gpuperf-config.5", "libgpuperf_injector.7")
# Pages of ours are not installed, others' need not be.
KNOWN = "referenced manual not found"


def read_text(page):
    if shutil.which("mandoc") is None:
        raise unittest.SkipTest("needs mandoc: its package is not installed")
    return subprocess.run(["mandoc", "-T", "ascii", "-O", "width=1000", BUILD / "man" / page], capture_output=True,
                          text=True, check=True, timeout=60).stdout


def plain(text):
    """Without the overstrikes of a terminal, and blanks as one."""
    return re.sub(r"\s+", " ", re.sub(".\b", "", text))


class ManPagesTest(unittest.TestCase):
    def test_mandoc_finds_no_fault(self):
        if shutil.which("mandoc") is None:
            self.skipTest("needs mandoc: its package is not installed")
        for page in PAGES:
            with self.subTest(page):
                result = subprocess.run(["mandoc", "-T", "lint", "-W", "style", BUILD / "man" / page],
                                        capture_output=True, text=True, timeout=60, check=False)
                faults = [line for line in result.stdout.splitlines() if KNOWN not in line]
                self.assertEqual(faults, [])

    def test_every_command_and_its_summary_is_there(self):
        text = plain(read_text("gpuperfctl.1"))
        help_text = subprocess.run([GPUPERFCTL, "--help"], capture_output=True, text=True, check=True, timeout=60,
                                   env={**os.environ, "NO_COLOR": "1"}).stdout
        commands = re.findall(r"^  (\w+) {2,}(\S.*)$", help_text.partition("Subcommands:")[2], re.M)
        self.assertGreater(len(commands), 10)
        for name, _ in commands:
            self.assertIn(f" {name} ", text)
        self.assertIn("--in-flight", text)
        self.assertIn("Not together with --by.", text)

    def test_every_setting_and_its_default_is_there(self):
        text = plain(read_text("gpuperf-config.5"))
        schema = json.loads((SOURCE / "docs/config.schema.json").read_text(encoding="utf-8"))
        settings = {}

        def add(prefix, rules):
            for name, rule in rules.items():
                if "properties" in rule:
                    add(f"{prefix}{name}.", rule["properties"])
                elif prefix:
                    settings[prefix + name] = rule
        add("", {name: rule for name, rule in schema["properties"].items() if name != "libraries"})
        self.assertGreater(len(settings), 50)
        self.assertIn("export.otlp.endpoint", settings)
        for name, setting in settings.items():
            self.assertIn(f"{name} (", text)
            if "default" in setting:
                self.assertIn(f"default {json.dumps(setting['default'])}", text)

    def test_every_message_id_is_told_in_the_page_and_the_documentation(self):
        sources = [path.read_text(encoding="utf-8") for path in (SOURCE / "daemon").rglob("*.cpp")]
        ids = {name for source in sources for name in re.findall(r'"([0-9a-f]{32})"', source)}
        self.assertGreaterEqual(len(ids), 6)
        page = plain(read_text("gpuperfd.8"))
        operations = (SOURCE / "docs/operations.md").read_text(encoding="utf-8")
        for name in ids:
            self.assertIn(name, page)
            self.assertIn(name, operations)


if __name__ == "__main__":
    unittest.main(verbosity=2)
