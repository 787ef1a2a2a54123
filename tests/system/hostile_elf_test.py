#!/usr/bin/env python3
"""Files that lie, where a library is expected: the daemon says so, and everything else goes on."""

import os
import pathlib
import shutil
import struct
import tempfile
import threading
import time
import unittest

from gpuperf_system import (WORKLOADS, Daemon, finish_workload, get_calls, require_root,
                            start_workload, wait_until)

FUNCTIONS = ("count_fast", "count_status", "count_nested")
# Maps each file to run and stays: what makes the daemon look at it.
MAPPER = """
import mmap, pathlib, sys, time
held = []
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        held.append(mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | 4))  # 4: run
pathlib.Path(sys.argv[1]).touch()
time.sleep(300)
"""
SYMTAB, STRTAB, DYNSYM = 2, 3, 11
KILOBYTES_PER_MEBIBYTE = 1024


def make_header(sections_offset=0, sections=0, segments=1):
    """An ELF header of an x86-64 library whose program headers follow it."""
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    return identity + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections_offset, 0, 64, 56,
                                  segments, 64, sections, 0)


def make_segment(offset=0, vaddr=0, size=4096):
    return struct.pack("<IIQQQQQQ", 1, 5, offset, vaddr, vaddr, size, size, 4096)


def make_section(kind, offset, size, link=0, entry_size=0):
    return struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, link, 0, 8, entry_size)


def make_elf(sections, body=b"", segments=1):
    """A page of headers, `body`, and the section headers at its end."""
    page = (make_header(4096 + len(body), len(sections), segments) +
            make_segment() * segments).ljust(4096, b"\0")
    return page + body + b"".join(sections)


def make_cyclic():
    """Section headers that are their own symbols and their own strings."""
    return make_elf([make_section(SYMTAB, 4096, 192, link=0, entry_size=24),
                     make_section(DYNSYM, 4096, 192, link=1, entry_size=24),
                     make_section(STRTAB, 4096, 192, link=2)])


def make_overlapping():
    """Symbols, strings and program headers all in one place."""
    return make_elf([make_section(0, 0, 0), make_section(DYNSYM, 0, 4080, link=2, entry_size=24),
                     make_section(STRTAB, 0, 4096)], segments=60)


def make_many_symbols(count):
    """`count` exported functions at one place, the wanted ones not among them."""
    name = b"\0f" + b"x" * 100 + b"\0"
    symbol = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 64, 8)
    symbols = symbol * count
    return make_elf([make_section(0, 0, 0),
                     make_section(DYNSYM, 4096, len(symbols), link=2, entry_size=24),
                     make_section(STRTAB, 4096 + len(symbols), len(name))], symbols + name)


def setUpModule():
    require_root()


class HostileElfTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuperf-hostile-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.library = shutil.copy(WORKLOADS / "libcount_target.so", self.folder)

    def make_config(self, *named):
        """`named`: paths the configuration names beside the good library."""
        return {"custom_sym": {name: name for name in FUNCTIONS},
                "libraries": {"custom_sym": [self.library, f"{self.folder}/libbad*",
                                             *map(str, named)]},
                "slow": {"default_threshold_ms": 0}}

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def map_files(self, *paths):
        ready = self.folder / "mapped"
        mapper = start_workload("/usr/bin/python3", "-c", MAPPER, ready, *paths)
        self.addCleanup(mapper.stdout.close)
        self.addCleanup(mapper.wait)
        self.addCleanup(mapper.kill)
        wait_until("the files are mapped", ready.exists)

    def check_counts(self, daemon):
        """The good library beside them is counted exactly."""
        process = start_workload("count_calls", "--calls", 500,
                                 "--wait-for-file", daemon.path / "go",
                                 env=os.environ | {"LD_LIBRARY_PATH": str(self.folder)})
        self.addCleanup(process.stdout.close)
        for name in FUNCTIONS:
            daemon.wait_for_probe(name, library=self.library)
        (daemon.path / "go").touch()
        (truth,) = finish_workload(process)
        rows = daemon.wait_for_counts(truth["pid"], get_calls(truth))
        self.assertEqual({name: row["calls"] for name, row in rows.items()}, get_calls(truth))
        self.assertIsNone(daemon.process.poll())

    def wait_until_said(self, daemon, path, text=""):
        """The daemon names the file, in the log or as the reason of a probe, with `text` behind it."""
        def is_said():
            reasons = [f"{row['library']} {row['reason']}" for row in daemon.query("probes")]
            lines = daemon.log().splitlines() + reasons
            return any(str(path) in line and text in line for line in lines)
        wait_until(f"the daemon says {text!r} of {path}", is_said)

    @staticmethod
    def get_peak_mib(daemon):
        status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / KILOBYTES_PER_MEBIBYTE

    def test_files_that_are_no_libraries_are_named_and_left(self):
        fifo = self.folder / "libbad_fifo.so"
        os.mkfifo(fifo)
        device = self.folder / "libbad_device.so"
        os.mknod(device, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
        text = self.write("libbad_text.so", b"not an ELF file " * 1000)
        with Daemon(self.make_config(fifo, device, self.folder)) as daemon:
            self.map_files(device, text)

            self.check_counts(daemon)

            self.wait_until_said(daemon, fifo, "not a regular file")
            self.wait_until_said(daemon, device, "not a regular file")
            self.wait_until_said(daemon, self.folder, "not a regular file")
            self.wait_until_said(daemon, text, "not an ELF file")

    def test_headers_that_contradict_each_other_are_said_and_survived(self):
        files = [self.write("libbad_cyclic.so", make_cyclic()),
                 self.write("libbad_short.so",
                            make_header(4096, 3) + make_segment() + bytes(4096 - 120)),
                 self.write("libbad_segments.so", make_elf([], segments=600) + bytes(60_000))]
        # Nothing in it is wrong by itself: a library without any function that is wanted.
        overlapping = self.write("libbad_overlapping.so", make_overlapping())
        with Daemon(self.make_config()) as daemon:
            self.map_files(*files, overlapping)

            self.check_counts(daemon)

            for path in files:
                self.wait_until_said(daemon, path)

    def test_a_million_symbols_and_four_gibibytes_of_nothing_take_bounded_memory(self):
        many = self.write("libbad_many.so", make_many_symbols(1_000_000))
        sparse = self.write("libbad_sparse.so", make_elf(
            [make_section(0, 0, 0), make_section(DYNSYM, 8192, 3 << 30, link=2, entry_size=24),
             make_section(STRTAB, 0, 4096)]))
        os.truncate(sparse, 4 << 30)
        # With a pattern, which has to look at every name.
        config = self.make_config()
        config["custom_sym"]["pattern"] = "nothing_like*this"
        with Daemon(config) as daemon:
            self.map_files(many, sparse)

            self.check_counts(daemon)

            self.wait_until_said(daemon, sparse, "too large")
            # 24 MB of symbols are held while they are looked through, and then given back.
            self.assertLess(self.get_peak_mib(daemon), 400)

    def test_a_library_truncated_and_restored_all_the_time_is_survived(self):
        content = pathlib.Path(self.library).read_bytes()
        restless = self.write("libbad_restless.so", content)
        stop = threading.Event()

        def disturb():
            with open(restless, "r+b") as file:
                while not stop.is_set():
                    file.truncate(len(content) // 2)
                    time.sleep(0.001)
                    file.seek(0)
                    file.write(content)
                    file.flush()

        disturber = threading.Thread(target=disturb)
        with Daemon(self.make_config(restless)) as daemon:
            disturber.start()
            try:
                self.map_files(restless)
                self.check_counts(daemon)
                self.wait_until_said(daemon, restless)
            finally:
                stop.set()
                disturber.join()


if __name__ == "__main__":
    unittest.main(verbosity=2)
