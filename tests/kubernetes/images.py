"""Images of containers from what was built here: programs with the shared libraries they need, no registry."""

import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

from gpuperf_system import BUILD, GPUPERFCTL, GPUPERFD, SOURCE

INJECTOR = BUILD / "injector/libgpuperf_injector.so"
GPUPERF, WORKLOADS, PAUSE = "gpuperf:0.1.0", "gpuperf-workloads:1", "gpuperf-pause:1"
# Where a Debian image has links; libraries are placed behind them.
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


def find_libraries(program):
    """The shared libraries that the loader takes for it, and the loader."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    if "not found" in text:
        raise AssertionError(f"ldd {program}: {text}")
    return [pathlib.Path(path) for path in re.findall(r"^\s+(?:\S+ => )?(/\S+) \(", text, re.M)]


def add_usr(path):
    """/lib/x -> /usr/lib/x, as in every image of Debian."""
    parts = pathlib.Path(path).parts
    return pathlib.Path("/", LINKS.get(parts[1], parts[1]), *parts[2:])


class Image:
    """An image of one layer, to be filled and written in the form of `docker save`."""

    def __init__(self, name, entrypoint=()):
        self.name = name
        self.entrypoint = list(entrypoint)
        self.files = {}  # path within: path here

    def add(self, source, target):
        """A file, with the shared libraries it needs, which keep the paths they have here."""
        self.files[add_usr(target)] = pathlib.Path(source)
        self.add_libraries(source)

    def add_libraries(self, source):
        """The shared libraries that a file needs, without it."""
        for library in find_libraries(source):
            self.files.setdefault(add_usr(library), library)

    def add_tree(self, root, *names, target):
        """Programs of `root` with their libraries; those that lie in `root` too keep their places to each other."""
        for name in names:
            self.files[pathlib.Path(target, name)] = root / name
            for library in find_libraries(root / name):
                inside = pathlib.Path(os.path.normpath(library))
                self.files.setdefault(pathlib.Path(target, inside.relative_to(root)) if inside.is_relative_to(root)
                                      else add_usr(library), library)

    def add_tools(self, *names):
        """Programs of this machine, found by PATH."""
        for name in names:
            path = shutil.which(name)
            if not path:
                raise AssertionError(f"{name} is not on this machine")
            self.add(path, path)

    def write(self, path):
        with tempfile.TemporaryFile() as layer:
            self.write_layer(layer)
            size = layer.tell()
            layer.seek(0)
            digest = hashlib.file_digest(layer, "sha256").hexdigest()
            layer.seek(0)
            config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": self.entrypoint},
                                 "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
            manifest = json.dumps([{"Config": "config.json", "RepoTags": [self.name],
                                    "Layers": ["layer.tar"]}]).encode()
            with tarfile.open(path, "w") as archive:
                for name, text in (("config.json", config), ("manifest.json", manifest)):
                    archive.addfile(describe(name, len(text)), io.BytesIO(text))
                archive.addfile(describe("layer.tar", size), layer)

    def write_layer(self, layer):
        with tarfile.open(fileobj=layer, mode="w") as archive:
            for name, target in LINKS.items():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, target
                archive.addfile(link)
            for target, source in sorted(self.files.items()):
                with open(source, "rb") as file:
                    archive.addfile(describe(str(target)[1:], os.fstat(file.fileno()).st_size, 0o755), file)
        layer.flush()


def describe(name, size, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry


def make_images(folder):
    """Archives of the images: what deploy/Dockerfile makes, from this build; the workloads; pods' first container."""
    stripped = folder / "stripped"
    stripped.mkdir()
    gpuperf = Image(GPUPERF, entrypoint=["/usr/sbin/gpuperfd"])
    for program, target in ((GPUPERFD, "/usr/sbin/gpuperfd"), (GPUPERFCTL, "/usr/bin/gpuperfctl"),
                            (INJECTOR, "/usr/lib/gpuperf/libgpuperf_injector.so")):
        subprocess.run(["strip", "--strip-unneeded", "-o", stripped / program.name, program], check=True)
        gpuperf.add(stripped / program.name, target)
    gpuperf.files[pathlib.Path("/usr/lib/gpuperf/place_injector")] = SOURCE / "deploy/place_injector.sh"
    gpuperf.add_tools("sh", "cp", "mv", "ln", "rm", "sync", "chmod", "sha256sum", "cmp", "findmnt")
    workloads = Image(WORKLOADS)
    workloads.add_tree(BUILD / "tests", "workloads/cuda_calls_standin", "workloads/injected",
                       "fakes/cupti/cupti_13/libcupti.so.13", target="/app")
    workloads.add_tools("sh", "sleep")
    workloads.add_libraries(INJECTOR)  # of the C library's package: every image has them
    pause = Image(PAUSE, entrypoint=["/usr/bin/sleep", "infinity"])
    pause.add_tools("sleep")
    for image in (gpuperf, workloads, pause):
        archive = folder / f"{image.name.split(':')[0]}.tar"
        image.write(archive)
        yield archive
