#!/usr/bin/env python3
"""Every struct and field of the binary contracts is recorded in layouts.inc, without hidden padding.

usage: layouts_test.py BPFTOOL CLANG FLAG...
"""

import sys
import unittest

import layouts

ARGUMENTS = sys.argv[1:]
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
