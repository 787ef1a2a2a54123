#!/usr/bin/env python3
"""Unpacks the Pythons of several Debian releases, each with its own libraries, to be run in place; installs nothing.

usage: python_roots.py FOLDER

The packages come from where apt's own configuration takes this release's. Prints a line "NAME COMMAND" for each Python
that runs, and on standard error why one is missing. What FOLDER holds already is not fetched again.
"""

import pathlib
import re
import subprocess
import sys

# Release and the Python to take from it.
PYTHONS = [("bullseye", "3.9"), ("trixie", "3.13"), ("forky", "3.14"), ("forky", "3.15")]
# What the interpreter and the modules that the tests import are linked with; under one of its names each.
LIBRARIES = ["libc6", "libexpat1", "zlib1g", "libgcc-s1", "libcrypt1", "libffi7", "libffi8", "libzstd1"]
KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
COMMAND_SECONDS = 120


class Missing(Exception):
    """Why a Python cannot be had."""


def run(*command, folder=None):
    try:
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True,
                              timeout=COMMAND_SECONDS).stdout
    except FileNotFoundError as error:
        raise Missing(f"no {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{command[0]}: longer than {COMMAND_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip() or "failed").splitlines()[-1]
        raise Missing(f"{command[0]}: {reason}") from error


def find_archives():
    """Addresses of the archives that apt takes this release from."""
    lines = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").splitlines()
    # Updates of security have releases of other names.
    archives = sorted({line for line in lines if not line.rstrip("/").endswith("security")})
    if not archives:
        raise Missing("apt knows no archive")
    return archives


class Apt:
    """apt for one release, with lists and files in a folder of its own."""

    def __init__(self, release, folder):
        self.folder = folder
        for part in ("lists/partial", "archives/partial", "files"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        sources = folder / "sources.list"
        signed = f" signed-by={KEYRING}" if KEYRING.exists() else ""
        sources.write_text("".join(f"deb [arch=amd64{signed}] {archive} {release} main\n"
                                   for archive in find_archives()))
        # What is installed here does not count.
        settings = {"Dir::Etc::SourceList": sources, "Dir::Etc::SourceParts": "/dev/null",
                    "Dir::State::Lists": folder / "lists", "Dir::State::status": "/dev/null", "Dir::Cache": folder,
                    "Dir::Cache::archives": folder / "archives", "APT::Sandbox::User": "root"}
        self.options = [option for name, value in settings.items() for option in ("-o", f"{name}={value}")]
        run("apt-get", *self.options, "-qq", "update")

    def find_available(self, packages):
        """Those of the packages that the release has."""
        policy = run("apt-cache", *self.options, "policy", *packages)
        return re.findall(r"^(\S+):\n.*\n  Candidate: (?!\(none\))", policy, re.MULTILINE)

    def unpack(self, packages, root):
        run("apt-get", *self.options, "-qq", "download", *packages, folder=self.folder / "files")
        for package in sorted((self.folder / "files").glob("*.deb")):
            run("dpkg-deb", "-x", package, root)


def make_command(root, version):
    """Runs the Python with the libraries of its root."""
    loader = next(root.glob("**/x86_64-linux-gnu/ld-linux-x86-64.so.2"), None)
    if loader is None:
        raise Missing("its C library has no program loader")
    libraries = ":".join(str(root / part) for part in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"))
    return f"PYTHONHOME={root}/usr {loader} --library-path {libraries} {root}/usr/bin/python{version}"


def prepare(release, version, folder):
    """The command that runs it."""
    root = folder / f"{release}_{version}"
    done = root / "unpacked"
    if not done.exists():
        apt = Apt(release, folder / f"apt_{release}_{version}")
        needed = [f"python{version}-minimal", f"libpython{version}-minimal", f"libpython{version}-stdlib"]
        available = apt.find_available(needed + LIBRARIES)
        if not set(needed) <= set(available):
            raise Missing(f"{release} has no Python {version}")
        root.mkdir(parents=True, exist_ok=True)
        apt.unpack(available, root)
        done.touch()
    command = make_command(root, version)
    run("env", *command.split(), "-c", "import asyncio, ctypes")
    return command


def prepare_all(folder):
    """(name, command) of each that runs; says on standard error why others do not."""
    pythons = []
    for release, version in PYTHONS:
        name = f"{release}_{version.replace('.', '_')}"
        try:
            pythons.append((name, prepare(release, version, pathlib.Path(folder).resolve())))
        except Missing as reason:
            print(f"{name}: left out: {reason}", file=sys.stderr)
    return pythons


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, command in prepare_all(sys.argv[1]):
        print(name, command)


if __name__ == "__main__":
    main()
