#!/usr/bin/env python3
"""Every path in backticks on the pages for contributors exists, and every test that docs/reliability.md names; every cause of
drops is named in a test.

A path is what has a slash or ends like a source file. It may begin below any folder (`view/formats`), leave out the
extension, and hold `*` or NAME for any name.

usage: adding_test.py SOURCE_FOLDER
"""

import fnmatch
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
PAGES = ["docs/adding.md", "docs/architecture.md", "docs/contributing.md"]
SOURCE_FILE = re.compile(r"\w\.(c|cmake|cpp|h|inc|json|md|proto|py|S|sh|txt|yaml)$")


def list_tree():
    """Every file and folder, each with a slash before it; build folders are no part of the tree."""
    paths = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        paths += ["/" + os.path.relpath(os.path.join(folder, name), ROOT) for name in folders + files]
    return paths


TREE = list_tree()


def list_paths(text):
    """The paths among the words in backticks. Absolute ones are of the host, not of the tree."""
    spans = re.findall(r"`([^`\s]+)`", text)
    return [span for span in spans if not span.startswith("/") and ("/" in span or SOURCE_FILE.search(span))]


def exists(path):
    pattern = "*/" + path.rstrip("/").replace("NAME", "*")
    return any(fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + ".*") for name in TREE)


def list_tests():
    """`Suite.Case` of every GoogleTest and `test_name` of every unittest."""
    found = set()
    for path in (ROOT / "tests").rglob("*"):
        if path.suffix == ".cpp":
            found |= {".".join(pair) for pair in re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", path.read_text(), re.M)}
        elif path.suffix == ".py":
            found |= set(re.findall(r"^ +def (test_\w+)\(", path.read_text(), re.M))
    return found


class AddingTest(unittest.TestCase):
    def test_every_path_exists(self):
        for page in PAGES:
            for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
                for path in list_paths(line):
                    with self.subTest(f"{page}:{number}"):
                        self.assertTrue(exists(path), f"{path} is not in the tree")

    def test_every_promise_names_a_test(self):
        named = re.findall(r"`(test_\w+|[A-Z]\w+\.[A-Z]\w+)`", (ROOT / "docs/reliability.md").read_text())
        self.assertGreater(len(named), 50)
        self.assertEqual(sorted(set(named) - list_tests()), [])

    def test_every_drop_is_named_in_a_test(self):
        rows = re.findall(r'\{DropCause::(k\w+), "\w+", "(\w+)"', (ROOT / "daemon/model/drops.cpp").read_text())
        self.assertGreater(len(rows), 90)
        texts = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*")
                          if path.suffix in (".cpp", ".h", ".py") and path.name != "drops_test.cpp")
        words = set(re.findall(r"\w+", texts))
        unnamed = [cause for cause, reason in rows
                   if not words & {cause, reason, f"{reason}_count", f"GPUPERF_LOSS_{reason.upper()}"}]
        self.assertEqual(unnamed, [])

    def test_the_rule_refuses_what_it_should(self):
        self.assertEqual(list_paths("`client/cmd_NAME.cpp` `drops.cpp` `view/formats` `/proc` `.proto` `a.b_ms` `return`"),
                         ["client/cmd_NAME.cpp", "drops.cpp", "view/formats"])
        self.assertTrue(exists("client/cmd_NAME.cpp"))
        self.assertTrue(exists("view/formats"))
        self.assertTrue(exists("docs/decisions/"))
        self.assertFalse(exists("daemon/view/ops.cpp"))
        self.assertFalse(exists("iew/formats"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
