#!/usr/bin/env python3
"""What a mutex guards is only touched with it held: clang checks the annotations of daemon/base/mutex.h.

usage: locks_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in (sys.argv.pop(1), sys.argv.pop(1)))
ANNOTATIONS = "daemon/base/mutex.h"
CHECK = ["clang++", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety", "-fpch-instantiate-templates"]
UNCHECKED = re.compile(r"std::(recursive_|shared_|timed_)*(mutex|lock_guard|unique_lock|scoped_lock|condition_variable)")

SAMPLE = """
#include "daemon/base/mutex.h"
namespace gpuperf {
class Counter {
 public:
  void add() { %s ++count_; }
 private:
  Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};
}
"""


def includes(path, header):
    return f'#include "{header}"' in path.read_text()


def list_headers():
    return [path.relative_to(ROOT) for path in sorted((ROOT / "daemon").rglob("*.h")) if includes(path, ANNOTATIONS)]


def find_members(headers):
    """A pattern for definitions of members of the headers' classes, in whatever source file they are."""
    classes = [name for header in headers for name in re.findall(r"^class (\w+)[^;]*$", (ROOT / header).read_text(), re.M)]
    return re.compile(rf"^(?:\S.*\b)?(?:{'|'.join(classes)})::~?\w+\(", re.M)


def read_commands():
    """Path of a file of the daemon -> (its precompiled headers, its flags that matter to a check)."""
    commands = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        # A unity build compiles one file that includes those of a folder.
        paths = re.findall(r'#include "(.+)"', path.read_text()) if path.parent.name == "Unity" else [path]
        paths = [pathlib.Path(one) for one in paths if pathlib.Path(one).is_relative_to(ROOT / "daemon")]
        words = shlex.split(entry["command"])
        pairs = list(zip(words, words[1:]))
        flags = [word for word in words if re.match("-(std=|D|I)", word)]
        flags += [flag for pair in pairs if pair[0] == "-isystem" for flag in pair]
        for one in paths:
            commands[one.relative_to(ROOT)] = (next((b for a, b in pairs if a == "-include"), ""), flags)
    return commands


class Group:
    """Files with the same precompiled headers in the build: here all their annotated headers, parsed once."""

    def __init__(self, folder):
        self.folder, self.headers, self.sources, self.flags = folder, [], [], []

    def precompile(self):
        text = self.folder / "annotated.h"
        text.write_text("".join(f'#include "{header}"\n' for header in self.headers))
        return run([*CHECK, *self.flags, "-x", "c++-header", text, "-o", self.folder / "annotated.pch"])

    def check(self, source):
        command = [*CHECK, *self.flags, "-fsyntax-only", source]
        result = run([*command, "-include-pch", self.folder / "annotated.pch"])
        # A header of another folder may have a name that is this file's own: alone it does not.
        return result if result.returncode == 0 else run(command)

    def check_sample(self, name, statement):
        path = self.folder / name
        path.write_text(SAMPLE % statement)
        return self.check(path)


def run(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def make_groups(folder):
    commands = read_commands()
    headers = list_headers()
    members = find_members(headers)
    groups = {}

    def get_group(key):
        if key not in groups:
            groups[key] = Group(folder / str(len(groups)))
            groups[key].folder.mkdir()
        return groups[key]

    for source, (key, flags) in commands.items():
        if not includes(ROOT / source, ANNOTATIONS) and not members.search((ROOT / source).read_text()):
            continue
        group = get_group(key)
        group.sources.append(source)
        group.flags = list(dict.fromkeys([*group.flags, *flags]))
    for header in headers:
        # A header without a source file of its own: as one of its folder is compiled.
        like = next(source for source in [header.with_suffix(".cpp"), *commands]
                    if source in commands and source.parent == header.parent)
        get_group(commands[like][0]).headers.append(header)
    return list(groups.values())


class LocksTest(unittest.TestCase):
    def test_what_is_guarded_is_touched_with_its_mutex_held(self):
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            groups = make_groups(pathlib.Path(folder))
            self.assertGreater(sum(len(group.sources) for group in groups), 25)
            for result in pool.map(Group.precompile, groups):
                self.assertEqual(result.returncode, 0, result.stderr)
            good = [pool.submit(group.check_sample, "good.cpp", "const MutexLock lock(mutex_);") for group in groups]
            bad = [pool.submit(group.check_sample, "bad.cpp", "") for group in groups]
            checks = {source: pool.submit(group.check, source) for group in groups for source in group.sources}

            for sample in good:
                self.assertEqual(sample.result().returncode, 0, sample.result().stderr)
            for sample in bad:
                self.assertIn("requires holding mutex", sample.result().stderr)
            for source, check in checks.items():
                with self.subTest(str(source)):
                    self.assertEqual(check.result().returncode, 0, check.result().stderr)

    def test_every_mutex_is_one_that_is_checked(self):
        for path in sorted((ROOT / "daemon").rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix not in (".h", ".cpp") or name == ANNOTATIONS:
                continue
            text = path.read_text()
            with self.subTest(name):
                self.assertIsNone(UNCHECKED.search(text), f"use {ANNOTATIONS}")
                for mutex in re.findall(r"^ *(?:mutable )?Mutex (\w+);", text, re.M):
                    self.assertIn(f"ABSL_GUARDED_BY({mutex})", text, f"{mutex} guards nothing")


if __name__ == "__main__":
    unittest.main(verbosity=2)
