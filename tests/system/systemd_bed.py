"""A machine of its own to install gpuperf on: systemd as PID 1 on an overlay of this machine's files.

Its processes, mounts, hostname, network and cgroups are its own, and what it writes is gone with it. The kernel, and so the
BPF programs and probes in it, is this machine's.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from gpuperf_system import BUILD, SOURCE, wait_until
from gpuperf_system import WORKLOADS as OUTER_WORKLOADS

# Where the bed has them, too: no home and not below /tmp, which services do not see.
WORKLOADS = pathlib.Path("/opt/workloads")
SYSTEMD = pathlib.Path("/lib/systemd/systemd")

# What would touch this machine, or has nothing to do here.
MASKED = ("systemd-udevd.service", "systemd-udev-trigger.service", "systemd-udevd-control.socket",
          "systemd-udevd-kernel.socket", "systemd-sysctl.service", "systemd-modules-load.service",
          "systemd-remount-fs.service", "systemd-random-seed.service", "systemd-binfmt.service",
          "systemd-update-utmp.service", "systemd-timesyncd.service", "proc-sys-fs-binfmt_misc.automount",
          "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount", "dev-mqueue.mount",
          "timers.target", "paths.target")

# In new namespaces: builds the root around the overlay at $1, mounts the folder $2 at $3 and the folders $4... from outside at
# their own paths, and becomes systemd.
BOOT = r"""
set -eu
root=$1
mkdir -p "$root$3"
mount --bind "$2" "$root$3"
shift 3
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount --rbind /sys "$root/sys"
mount -o remount,bind,ro "$root/sys"
umount --lazy "$root/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for folder; do
  mkdir -p "$root$folder"
  mount --bind "$folder" "$root$folder"
done
cd "$root"
pivot_root . mnt
umount --lazy /mnt
hostname gpuperf-bed
exec env -i container=gpuperf-bed PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --unit=basic.target --show-status=no --log-target=journal
"""


def require_bed():
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root: it makes namespaces")
    if not SYSTEMD.exists():
        raise unittest.SkipTest("needs systemd: its package is not installed")
    if subprocess.run(["unshare", "-mpuinC", "-f", "true"], capture_output=True, check=False).returncode:
        raise unittest.SkipTest("needs namespaces: unshare is refused here")


def find_cgroup2():
    for line in pathlib.Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(folder)
    raise unittest.SkipTest("needs a cgroup v2 hierarchy: none is mounted")


class SystemdBed:
    """A context manager: boots when entered, leaves nothing behind. `prepare(root)` changes its files before."""

    def __init__(self, prepare=lambda root: None):
        self.prepare = prepare
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuperf-bed-"))
        self.root = self.folder / "root"
        self.cgroup = find_cgroup2() / self.folder.name
        self.process = None
        self.pid = None

    def __enter__(self):
        try:
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def boot(self):
        layers = self.folder / "layers"
        layers.mkdir()
        self.root.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layers], check=True)
        (layers / "upper").mkdir()
        (layers / "work").mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work", self.root], check=True)
        self.cgroup.mkdir()
        for unit in MASKED:
            link = self.root / "etc/systemd/system" / unit
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        self.prepare(self.root)
        enter_cgroup = f'echo $$ > {self.cgroup}/cgroup.procs && exec "$@"'
        folders = sorted({str(SOURCE), str(BUILD)})
        self.process = subprocess.Popen(
            ["sh", "-c", enter_cgroup, "sh", "unshare", "-mpuinC", "-f", "--kill-child", "bash", "-c", BOOT, "boot",
             self.root, OUTER_WORKLOADS, WORKLOADS, *folders], stdin=subprocess.DEVNULL)
        wait_until("PID 1 of the bed", self.find_pid, 30)
        wait_until("systemd has booted", self.has_booted, 60)

    def find_pid(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the bed did not boot: exit {self.process.returncode}")
        unshare = self.process.pid
        children = pathlib.Path(f"/proc/{unshare}/task/{unshare}/children").read_text(encoding="ascii").split()
        self.pid = int(children[0]) if children else None
        return self.pid and pathlib.Path(f"/proc/{self.pid}/comm").read_text(encoding="utf-8").strip() == "systemd"

    def has_booted(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the bed ended while booting: exit {self.process.returncode}")
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def command(self, *arguments):
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", "env", "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LANG=C.UTF-8",
                "PYTHONDONTWRITEBYTECODE=1", *map(str, arguments)]

    def run(self, *arguments, check=True):
        result = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=600,
                                stdin=subprocess.DEVNULL, check=False)
        if check and result.returncode != 0:
            raise AssertionError(f"in the bed: {' '.join(map(str, arguments))}: exit {result.returncode}\n"
                                 f"{result.stdout}{result.stderr}")
        return result

    def show(self, unit, *properties):
        """Properties of a unit; one of them as text, several as a dictionary."""
        text = self.run("systemctl", "show", unit, f"--property={','.join(properties)}").stdout
        values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        return values[properties[0]] if len(properties) == 1 else values

    def find_outer_pid(self, pid):
        """This machine's number of a process that the bed knows as `pid`."""
        own = os.readlink(f"/proc/{self.pid}/ns/pid")
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                numbers = (folder / "status").read_text(encoding="utf-8").partition("\nNSpid:")[2].splitlines()[0].split()
                if numbers[-1] == str(pid) and os.readlink(folder / "ns/pid") == own:
                    return int(folder.name)
            except (OSError, IndexError):
                continue  # it has ended meanwhile
        raise AssertionError(f"no process {pid} in the bed")

    def journal(self, *matches):
        return self.run("journalctl", "--no-pager", "-o", "cat", *matches, check=False).stdout

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()  # and with it, by --kill-child, PID 1 and all of its namespace
            self.process.wait(timeout=30)
            if self.pid is not None:
                wait_until("the bed's processes are gone", lambda: not pathlib.Path(f"/proc/{self.pid}").exists(), 30)
        for folder in (self.root, self.folder / "layers"):
            subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)
        if self.cgroup.exists():
            wait_until("the bed's cgroups are empty", self.remove_cgroups, 30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def remove_cgroups(self):
        for folder, _, _ in os.walk(self.cgroup, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                return False  # its last process is on its way out
        return True
