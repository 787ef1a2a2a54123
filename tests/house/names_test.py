#!/usr/bin/env python3
"""A type has its name for itself: of two with one name in one program, the linker takes the code of either for both.

usage: names_test.py SOURCE_FOLDER
"""

import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
# What becomes one program; each of the workloads is one of its own.
FOLDERS = ("daemon", "client", "injector", "tests/unit", "tests/fuzz")
BEGIN = re.compile(r"namespace ?([\w:]*) ?\{$")
END = re.compile(r"\}  // namespace")
TYPE = re.compile(r"(?:template <.*> ?)?(?:struct|class|union|enum(?: class)?) (?:alignas\(.*\) )?(\w+)(?: final)?(?: :.*)? \{")


def find_types(text):
    """Names of the types that have one outside of their file, in text as clang-format leaves it."""
    spaces, names = [], []
    for line in text.splitlines():
        if match := BEGIN.match(line):
            spaces.append(match[1])
        elif END.match(line):
            spaces.pop()
        elif (match := TYPE.match(line)) and "" not in spaces:
            names.append("::".join([*spaces, match[1]]))
    return names


class NamesTest(unittest.TestCase):
    def test_no_two_types_share_a_name(self):
        files = collections.defaultdict(set)
        for folder in FOLDERS:
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix in (".h", ".cpp"):
                    for name in find_types(path.read_text(encoding="utf-8")):
                        files[name].add(str(path.relative_to(ROOT)))
        self.assertGreater(len(files), 500)
        self.assertEqual({name: found for name, found in files.items() if len(found) > 1}, {})

    def test_types_are_found_where_they_can_clash(self):
        text = "namespace a {\nnamespace {\nstruct Own {\n};\n}  // namespace\n" \
               "struct Shared : Base {\n  struct Inner {\n  };\n};\nenum class Kind { kOne };\nclass Declared;\n" \
               "}  // namespace a\nnamespace b {\ntemplate <typename T>\nclass Other final {\n};\n}  // namespace b\n"
        self.assertEqual(find_types(text), ["a::Shared", "a::Kind", "b::Other"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
