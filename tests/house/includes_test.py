#!/usr/bin/env python3
"""Who may include whom: the rule of docs/architecture.md, checked on every file.

usage: includes_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

# Room -> what it may include beside itself and the standard library. A room is a folder; a name in angle
# brackets is a library by the first part of its header's path.
ALLOWED = {
    "bpf": {"<bpf>"},
    "injector": {"bpf/frame_rules.h", "bpf/hook_notes.h", "bpf/python_frames.h", "bpf/python_layouts.h", "bpf/stack_records.h",
                 "bpf/unwind.h"},
    "client": {"daemon/base/nearest_name.h", "gpuperf", "<CLI>", "<absl>", "<fmt>", "<google>", "<grpc>", "<grpcpp>", "<nlohmann>",
               "<openssl>", "<zlib>"},
    "daemon/base": {"<absl>", "<libiberty>", "<openssl>", "<spdlog>", "<systemd>"},
    "daemon/model": {"bpf/records.h", "injector/session_abi.h", "daemon/base", "<spdlog>"},
    "daemon/config": {"bpf/records.h", "daemon/base", "daemon/model", "daemon/probe/arguments", "daemon/probe/probe_spec.h",
                      "<nlohmann>"},
    "daemon/probe/arguments": {"bpf/records.h", "daemon/base", "daemon/model"},
    "daemon/probe/elf": {"daemon/base", "daemon/model", "daemon/probe/probe_spec.h"},
    "daemon/probe/code": {"bpf/frame_cursor.h", "bpf/frame_entry.h", "bpf/records.h", "daemon/base", "daemon/model", "daemon/probe/elf", "<Zydis>"},
    "daemon/probe/discovery": {"daemon/base", "daemon/model", "daemon/probe/elf", "daemon/probe/probe_spec.h", "<bpf>"},
    "daemon/probe/attach": {"bpf/hook_notes.h", "bpf/records.h", "bpf/stack_records.h", "daemon/base", "daemon/model", "daemon/probe", "<bpf>"},
    "daemon/probe": {"bpf/hook_notes.h", "bpf/records.h", "daemon/base", "daemon/model", "daemon/probe", "<bpf>"},
    "daemon/unwind": {"bpf/frame_rules.h", "bpf/python_frames.h", "bpf/python_layouts.h", "bpf/records.h", "bpf/stack_records.h",
                      "bpf/unwind.h", "daemon/base", "daemon/model", "daemon/probe", "<bpf>"},
    "daemon/attach": {"bpf/stack_records.h", "injector/attach_abi.h", "daemon/base", "daemon/model", "daemon/probe", "daemon/unwind",
                      "<spdlog>"},
    "daemon/owner": {"bpf/records.h", "daemon/base", "daemon/model", "<grpcpp>"},
    "daemon/collect": {"bpf/records.h", "daemon/base", "daemon/model", "daemon/probe/attach", "<bpf>", "<spdlog>"},
    "daemon/session": {"injector/session_abi.h", "daemon/base", "daemon/model", "<spdlog>"},
    "daemon/gpu": {"daemon/base", "daemon/model", "<spdlog>"},
    "daemon/state": {"bpf/records.h", "injector/session_abi.h", "daemon/base", "daemon/model", "<spdlog>"},
    "daemon/resolve": {"bpf/records.h", "bpf/stack_records.h", "daemon/attach", "daemon/base", "daemon/model", "daemon/probe",
                       "daemon/unwind", "<dwarf>", "<elfutils>", "<lzma>"},
    "daemon/store": {"daemon/base", "daemon/model", "gpuperf", "<absl>", "<google>", "<nlohmann>", "<spdlog>", "<sqlite3>", "<zlib>"},
    "daemon/view": {"injector/session_abi.h", "daemon/base", "daemon/model", "gpuperf", "<absl>", "<fmt>", "<google>", "<nlohmann>", "<zlib>"},
    "daemon/capture": {"injector/session_abi.h", "daemon/base", "daemon/config", "daemon/model", "daemon/owner",
                       "daemon/probe/attach", "daemon/resolve", "daemon/state", "daemon/store", "daemon/unwind"},
    "daemon/slow": {"injector/session_abi.h", "daemon/base", "daemon/capture", "daemon/model", "daemon/owner",
                    "daemon/resolve", "daemon/state", "daemon/view", "<fmt>", "<spdlog>"},
    "daemon/inject": {"daemon/base", "daemon/model", "daemon/store/whole_file.h", "<grpcpp>", "<nlohmann>"},
    "daemon/export": {"daemon/base", "daemon/model", "<prometheus>", "<spdlog>", "<zlib>"},
    "daemon/otlp": {"daemon/base", "daemon/config", "daemon/export/exporter.h", "daemon/model", "daemon/view",
                    "<absl>", "<google>", "<grpc>", "<grpcpp>", "<prometheus>"},
    "daemon/rpc": {"injector/session_abi.h", "daemon/base", "daemon/config", "daemon/export/exporter.h", "daemon/model", "daemon/store",
                   "daemon/view", "gpuperf", "<absl>", "<google>", "<grpc>", "<grpcpp>", "<spdlog>"},
    "daemon/web": {"daemon/base", "daemon/export/http_message.h", "daemon/model", "gpuperf", "<google>", "<grpcpp>"},
    # Puts the folders together.
    "daemon/app": {"daemon", "injector/session_abi.h", "<CLI>", "<absl>", "<bpf>"},
}
LIBRARIES = {"absl", "spdlog", "fmt", "nlohmann", "prometheus", "grpcpp", "grpc", "google", "CLI", "bpf",
             "httplib", "libelf", "gelf", "Zydis", "sqlite3", "dwarf", "elfutils", "libiberty", "lzma", "openssl", "systemd", "zlib"}
OURS = {"bpf", "injector", "client", "daemon", "tests"}


def room_of(path):
    """The longest room that holds a path relative to the root; None outside the rooms."""
    parents = [str(parent) for parent in pathlib.PurePath(path).parents]
    return next((parent for parent in parents if parent in ALLOWED), None)


def target_of(header, quoted):
    """What an include reaches: a path of ours, a library in angle brackets, or None (standard, system)."""
    first = header.split("/")[0].removesuffix(".h")
    if not quoted and first in LIBRARIES:
        return f"<{first}>"
    if first == "gpuperf":
        return "gpuperf"
    if quoted and first in OURS:
        return header
    return f"<{first}>" if first in LIBRARIES else None


def may_include(room, target):
    if target.startswith("<") or target == "gpuperf":
        return target in ALLOWED[room]
    if room_of(target) == room:
        return True
    return any(target == allowed or target.startswith(allowed + "/") for allowed in ALLOWED[room])


class IncludesTest(unittest.TestCase):
    def test_every_include_is_allowed(self):
        checked = 0
        for folder in ("bpf", "injector", "client", "daemon"):
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix not in (".h", ".c", ".cpp"):
                    continue
                name = str(path.relative_to(ROOT))
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    match = re.match(r'\s*#\s*include\s+([<"])([^">]+)[">]', line)
                    target = match and target_of(match[2], match[1] == '"')
                    if not target:
                        continue
                    checked += 1
                    with self.subTest(f"{name}:{number}"):
                        self.assertTrue(may_include(room_of(name), target),
                                        f"{room_of(name)} may not include {match[2]}")
        self.assertGreater(checked, 300)

    def test_the_rule_refuses_what_it_should(self):
        self.assertFalse(may_include("daemon/state", "daemon/probe/attach/programs.h"))
        self.assertFalse(may_include("client", "daemon/model/histogram.h"))
        self.assertFalse(may_include("daemon/rpc", "daemon/export/http.h"))
        self.assertFalse(may_include("injector", "<absl>"))
        self.assertTrue(may_include("daemon/rpc", "daemon/export/exporter.h"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
