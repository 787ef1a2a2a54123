#!/usr/bin/env python3
"""The script that places the injected library onto a host, for programs that run and programs that start."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from gpuperf_system import SOURCE

SCRIPT = SOURCE / "deploy/place_injector.sh"
LINK = "libgpuperf_injector.so"


class PlaceInjectorTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="gpuperf-test-")
        self.addCleanup(holder.cleanup)
        self.library = pathlib.Path(holder.name) / "library"
        self.folder = pathlib.Path(holder.name) / "host"
        self.folder.mkdir()
        self.library.write_bytes(b"version one")

    def place(self, *prefix):
        return subprocess.run([*prefix, SCRIPT, self.folder], capture_output=True, text=True, check=False,
                              env={**os.environ, "GPUPERF_INJECTOR": str(self.library)}, timeout=60)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_programs_find_the_library_by_a_name_that_stays(self):
        result = self.place()

        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual((self.folder / LINK).read_bytes(), b"version one")
        self.assertTrue(os.access(self.folder / LINK, os.X_OK))
        self.assertEqual(len(self.names()), 2)

    def test_a_new_version_leaves_the_file_that_programs_have_mapped_alone(self):
        self.place()
        before = (self.folder / LINK).resolve()
        inode = before.stat().st_ino

        self.library.write_bytes(b"version two, longer")
        self.assertEqual(self.place().returncode, 0)

        self.assertEqual((self.folder / LINK).read_bytes(), b"version two, longer")
        self.assertEqual((before.read_bytes(), before.stat().st_ino), (b"version one", inode))
        self.assertEqual(len(self.names()), 3)

    def test_placing_the_same_again_writes_nothing(self):
        self.place()
        before = (self.folder / LINK).resolve().stat()

        self.assertEqual(self.place().returncode, 0)

        after = (self.folder / LINK).resolve().stat()
        self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))
        self.assertEqual(len(self.names()), 2)

    def test_a_file_that_was_cut_short_is_replaced(self):
        self.place()
        broken = (self.folder / LINK).resolve()
        broken.write_bytes(b"vers")

        self.assertEqual(self.place().returncode, 0)

        self.assertEqual((self.folder / LINK).read_bytes(), b"version one")

    def test_a_folder_from_which_nothing_can_be_loaded_is_refused(self):
        if os.geteuid() != 0:
            self.skipTest("needs root: mounts a file system without the right to execute")
        result = self.place("unshare", "--mount", "sh", "-c",
                            f"mount -t tmpfs -o noexec tmpfs '{self.folder}' && exec \"$@\"", "sh")

        self.assertEqual(result.returncode, 1)
        self.assertIn("mounted noexec, so no program could load a library from it", result.stderr)

    def test_an_image_without_the_library_says_so(self):
        self.library.unlink()

        result = self.place()

        self.assertEqual(result.returncode, 1)
        self.assertIn("this image was built without the injected library", result.stderr)
        self.assertEqual(self.names(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
