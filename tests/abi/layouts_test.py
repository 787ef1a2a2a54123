#!/usr/bin/env python3
"""Every struct and field of the binary contracts is recorded in layouts.inc, without hidden padding.

usage: layouts_test.py BPFTOOL CLANG FLAG...
"""

import hashlib
import re
import sys
import unittest

import layouts

ARGUMENTS = sys.argv[1:]
HOOK_NOTES = layouts.SOURCE / "bpf/hook_notes.h"
# By the notes' provider, the structs that its libraries write, which nothing else gives a version.
HOOK_LAYOUTS = {"gpuperf_injector": "8b39f55319c26c31"}
RECORDED = {"record": (16, {"id": (0, 4), "pad": (4, 4), "time_ns": (8, 8)})}


class LayoutsTest(unittest.TestCase):
    def test_contracts_are_as_recorded(self):
        present = layouts.read_layouts(ARGUMENTS[0], ARGUMENTS[1:])
        differ = set(layouts.write(present).splitlines()) ^ set(layouts.RECORDED.read_text().splitlines())

        self.assertEqual(differ, set(), "after appending to a contract: cmake --build build --target record_layouts")

    def test_structs_have_no_hidden_padding_and_keep_records_aligned(self):
        for struct, (struct_size, fields) in layouts.parse(layouts.RECORDED.read_text()).items():
            end = 0
            for field, (offset, size) in fields.items():
                self.assertEqual(offset, end, f"{struct}.{field} leaves a gap")
                end = offset + size
            self.assertEqual(end, struct_size, struct)
            self.assertEqual(struct_size % 8, 0, struct)

    def test_other_structs_of_launch_hooks_have_another_provider(self):
        """A daemon leaves the notes of other providers alone, so libraries older or newer than it are never misread."""
        text = HOOK_NOTES.read_text(encoding="utf-8")
        (provider,) = re.findall(r'^#define GPUPERF_NOTE_PROVIDER "(\w+)"$', text, re.M)
        recorded = layouts.parse(layouts.RECORDED.read_text())
        names = re.findall(r"^struct (\w+) \{", text, re.M)
        # Structs of records.h that they contain show in their sizes.
        digest = hashlib.sha256(layouts.write({name: recorded[name] for name in names}).encode()).hexdigest()[:16]

        self.assertEqual(HOOK_LAYOUTS.get(provider), digest, "give GPUPERF_NOTE_PROVIDER the next number, and add a row here")

    def test_rows_that_are_written_are_read_again(self):
        self.assertEqual(layouts.parse(layouts.write(RECORDED)), RECORDED)

    def test_appended_fields_and_structs_break_nothing(self):
        appended = {"record": (24, {**RECORDED["record"][1], "end_ns": (16, 8)}), "other": (8, {"id": (0, 8)})}

        self.assertEqual(layouts.find_breaks(RECORDED, appended), [])

    def test_padding_may_become_a_field(self):
        self.assertEqual(
            layouts.find_breaks(RECORDED, {"record": (16, {"id": (0, 4), "tid": (4, 4), "time_ns": (8, 8)})}), [])

    def test_moved_resized_and_removed_fields_break_the_contract(self):
        for present in ({"record": (24, {"id": (0, 4), "pad": (4, 4), "new": (8, 8), "time_ns": (16, 8)})},
                        {"record": (16, {"id": (0, 8), "time_ns": (8, 8)})},
                        {"record": (16, {"id": (0, 4), "renamed_ns": (8, 8)})}):
            self.assertEqual(len(layouts.find_breaks(RECORDED, present)), 1, present)
        self.assertEqual(len(layouts.find_breaks(RECORDED, {})), 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
