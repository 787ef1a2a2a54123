"""Virtual machines that run a Debian kernel of our choice with the programs of the build folder, all from memory.

QEMU and the kernels come from Debian's archive, of whichever mirror this machine uses, into the build folder; nothing
is installed. Emulated, as test machines rarely have KVM: some ten times slower than the host.
"""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from gpuperf_system import BUILD, GPUPERFCTL, GPUPERFD, SOURCE, WORKLOADS  # noqa: E402 (the path above)

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = BUILD / "kernels"
KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# QEMU 7.2 of Debian 12 crashes newer kernels at boot.
QEMU_SUITE = "bookworm-backports"
OLD_SUITE = "bullseye"  # leaves the mirrors one day
SUITES = ("bookworm", "bookworm-updates", "bookworm-security", QEMU_SUITE, "trixie-backports", OLD_SUITE)
WORKLOAD_FILES = ("hooked_launches", "hooked/libcuda.so.1", "hooked/libgpuperf_injector.so",
                  "libcount_target.so", "count_calls", "call_once", "known_causes")
# Of Python's library: as much as may be left out.
PYTHON_LEFT_OUT = ("test", "idlelib", "tkinter", "ensurepip", "lib2to3", "pydoc_data", "distutils", "turtledemo")
COMMANDS = ("sh", "mount", "umount", "mkdir", "ip", "poweroff", "cat", "sleep")
# The kernel takes 20 s without progress for a hang; on a busy machine an emulated processor makes none for as long.
PARAMETERS = "console=ttyS0 quiet panic=-1 oops=panic rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60"
INIT = """#!/bin/sh
export PATH=/bin:/usr/bin HOME=/ LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 GPUPERF_BUILD=/build
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmp /tmp
mount -t tracefs trace /sys/kernel/tracing
mount -t securityfs security /sys/kernel/security
mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
ulimit -l unlimited
/usr/bin/python3 /source/tests/kernels/guest.py
poweroff -f
"""


class Unobtainable(Exception):
    """What cannot be had here, and why."""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise Unobtainable(f"{' '.join(map(str, command[:4]))} ...: {done.stderr.strip()[-400:]}")
    return done.stdout


class Archive:
    """Debian's packages, by an apt of our own beside the machine's."""

    def __init__(self):
        if not KEYRING.exists() or shutil.which("apt-get") is None:
            raise Unobtainable("needs Debian's apt-get and its keyring")
        self.folder = FOLDER / "apt"
        for name in ("lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "apt.conf"
        configuration.write_text(f'Dir::Etc::sourcelist "{self.folder}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
                                 f'Dir::State::lists "{self.folder}/lists";\nDir::Cache "{self.folder}/cache";\n'
                                 'APT::Sandbox::User "root";\n', encoding="ascii")
        self.environment = os.environ | {"APT_CONFIG": str(configuration)}
        self.update()

    def write_sources(self, suites):
        (self.folder / "sources.list").write_text("".join(
            f"deb [signed-by={KEYRING}] {site} {suite} main\n" for site, suite in self.list_sources() if suite in suites),
            encoding="ascii")

    @staticmethod
    def list_sources():
        """Mirror and suite of all suites wanted; those that the machine lacks are where its own are."""
        known = {}
        for line in run("apt-get", "indextargets", "--format", "$(RELEASE) $(SITE)").splitlines():
            suite, site = line.split(" ", 1)
            known.setdefault(suite, site)
        if "bookworm" not in known:
            raise Unobtainable("this machine's apt does not know Debian 12's own packages")
        return [(known.get(suite, known["bookworm"]), suite) for suite in SUITES
                if suite in known or not suite.endswith("-security")]

    def update(self):
        # Once a build folder: what was found then stays there.
        noted = self.folder / f"updated-{'-'.join(SUITES)}"
        if noted.exists():
            return
        self.write_sources(SUITES)
        try:
            run("apt-get", "-q", "update", env=self.environment)
        except Unobtainable:
            self.write_sources([suite for suite in SUITES if suite != OLD_SUITE])
            run("apt-get", "-q", "update", env=self.environment)
        noted.touch()

    def names(self):
        return run("apt-cache", "pkgnames", env=self.environment).split()

    def install(self, packages, into):
        """Unpacks packages and those they need that the machine has not."""
        run("apt-get", "-q", "-y", "--download-only", "--no-install-recommends", "-t", QEMU_SUITE, "install", *packages,
            env=self.environment)
        for package in sorted((self.folder / "cache/archives").glob("*.deb")):
            run("dpkg-deb", "-x", package, into)

    def download(self, package, into):
        run("apt-get", "-q", "download", package, cwd=into, env=self.environment)


class Emulator:
    def __init__(self, archive):
        self.folder = FOLDER / "qemu"
        if not (self.folder / "unpacked").exists():
            archive.install(["qemu-system-x86"], self.folder)
            (self.folder / "unpacked").touch()

    def boot(self, kernel, initramfs, log, seconds, parameters=""):
        """The console's text. Of `parameters` what the kernel does not know, NAME=VALUE, is in the environment of init."""
        libraries = [self.folder / name for name in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")]
        command = ["timeout", str(seconds), self.folder / "usr/bin/qemu-system-x86_64",
                   "-L", self.folder / "usr/share/qemu", "-L", self.folder / "usr/share/seabios",
                   "-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "2048",
                   "-kernel", kernel, "-initrd", initramfs, "-append", f"{PARAMETERS} {parameters}",
                   "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-monitor", "none"]
        with open(log, "wb") as output:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
                           env=os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, libraries))})
        return log.read_text(encoding="utf-8", errors="replace")


def find_kernel(archive, series):
    """The image of the newest kernel of a series ("6.12", or "7" for the newest of all 7.x), and its full version."""
    image = re.compile(rf"linux-image-({re.escape(series)}\.[0-9.]+[-+][0-9a-z.-]+?)-cloud-amd64")
    versions = [found[1] for name in archive.names() if (found := image.fullmatch(name))]
    if not versions:
        raise Unobtainable(f"the archive has no kernel {series}")
    version = max(versions, key=lambda text: [int(number) for number in re.findall(r"\d+", text)])
    path = FOLDER / f"linux-{version}"
    if not path.exists():
        # From 6.19 on the kernel itself is in a package of its own.
        binary = f"linux-binary-{version}-cloud-amd64"
        package = binary if binary in archive.names() else f"linux-image-{version}-cloud-amd64"
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            archive.download(package, folder)
            (file,) = pathlib.Path(folder).glob("*.deb")
            run("dpkg-deb", "-x", file, folder)
            (kernel,) = pathlib.Path(folder).glob("**/vmlinuz*")
            shutil.move(kernel, path)
    return path, version


def list_libraries(file):
    """The shared libraries of a program, and its loader."""
    found = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(?:=> |^\t)(/\S+) \(", found, re.M)


def make_initramfs(path):
    """The guest's whole file system: our programs, the test with its Python, and what they are linked with."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        root = pathlib.Path(folder)
        root.chmod(0o755)  # not everything runs as root

        def put_libraries(source):
            for library in list_libraries(source):
                copy = root / library.lstrip("/")
                if not copy.exists():
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(library, copy)

        def put(source, target, strip=False):
            target = root / str(target).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if strip:
                run("strip", "-s", "-o", target, source)
            else:
                shutil.copy2(source, target)
            put_libraries(source)

        for name in ("dev", "proc", "sys", "tmp", "run", "bin", "var/lib"):
            (root / name).mkdir(parents=True)
        put(shutil.which("busybox"), "/bin/busybox")
        put(shutil.which("setpriv"), "/bin/setpriv")
        for name in COMMANDS:
            (root / "bin" / name).symlink_to("busybox")
        put(GPUPERFD, "/build/daemon/gpuperfd", strip=True)
        put(GPUPERFCTL, "/build/client/gpuperfctl", strip=True)
        for name in WORKLOAD_FILES:
            put(WORKLOADS / name, f"/build/tests/workloads/{name}")
        put("/usr/bin/python3", "/usr/bin/python3")
        library = pathlib.Path(run("/usr/bin/python3", "-c", "import os; print(os.__file__)").strip()).parent
        shutil.copytree(library, root / str(library).lstrip("/"), symlinks=True, ignore_dangling_symlinks=True,
                        ignore=shutil.ignore_patterns(*PYTHON_LEFT_OUT, "__pycache__", "config-*", "*.a"))
        for module in (library / "lib-dynload").glob("*.so"):
            put_libraries(module)
        for file in (SOURCE / "tests/system/gpuperf_system.py", HERE / "guest.py"):
            put(file, f"/source/{file.relative_to(SOURCE)}")
        for name, text in (("etc/passwd", "root:x:0:0:root:/:/bin/sh\n"), ("etc/group", "root:x:0:\n"),
                           ("etc/hosts", "127.0.0.1 localhost\n"), ("init", INIT)):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text, encoding="ascii")
        (root / "init").chmod(0o755)
        names = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
        with open(path, "wb") as output:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names, stdout=output, check=True)


def prepare():
    """The archive and an emulator."""
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run of these tests may be fetching
        archive = Archive()
        return archive, Emulator(archive)
