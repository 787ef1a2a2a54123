#!/usr/bin/env python3
"""The Debian packages: what is in them, what lintian says, and their life on a machine of its own."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from gpuperf_system import BUILD, bpf_objects, wait_until
from systemd_bed import WORKLOADS, SystemdBed, require_bed

SERVICE = "gpuperfd.service"
LOWER_VERSION = "0.0.9-1"
CONTENTS = {
    "gpuperfd": {"/etc/gpuperf/config.json", "/usr/sbin/gpuperfd", "/usr/lib/systemd/system/gpuperfd.service",
                 "/usr/lib/sysusers.d/gpuperf.conf", "/usr/lib/tmpfiles.d/gpuperf.conf",
                 "/usr/share/gpuperf/config.schema.json", "/usr/share/man/man8/gpuperfd.8.gz",
                 "/usr/share/man/man5/gpuperf-config.5.gz"},
    "gpuperfctl": {"/usr/bin/gpuperfctl", "/usr/share/gpuperf/demo.capture", "/usr/share/man/man1/gpuperfctl.1.gz",
                   "/usr/share/bash-completion/completions/gpuperfctl",
                   "/usr/share/zsh/vendor-completions/_gpuperfctl",
                   "/usr/share/fish/vendor_completions.d/gpuperfctl.fish"},
    "libgpuperf-injector": {"/usr/lib/gpuperf/libgpuperf_injector.so", "/usr/share/man/man7/libgpuperf_injector.7.gz"},
}
DASHBOARDS = "gpuperf-dashboards"
# Folders whose files a package manager, a journal or a cache writes for reasons of its own.
NOT_OURS = ("/proc", "/sys", "/dev", "/tmp", "/var/lib/dpkg", "/var/log", "/var/cache", "/var/lib/systemd", "/run",
            "/root", "/home", "/work", "/opt", "/srv")  # other programs of the machine below write there meanwhile


def setUpModule():
    require_bed()
    for program in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "lintian"):
        if shutil.which(program) is None:
            raise unittest.SkipTest(f"needs {program}: its package is not installed")
    folder = tempfile.TemporaryDirectory(prefix="gpuperf-packages-")
    unittest.addModuleCleanup(folder.cleanup)
    global PACKAGES  # built once: it takes a while
    PACKAGES = build_packages(pathlib.Path(folder.name))


def build_packages(folder):
    """{name: file} of the packages of what is built."""
    result = subprocess.run(["cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", folder],
                            capture_output=True, text=True, timeout=900, check=False)
    if result.returncode != 0:
        raise AssertionError(f"cpack: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}


def make_lower_version(package, folder):
    """The same package with a version below: what an upgrade starts from."""
    tree = folder / package.stem
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True, timeout=120)
    control = tree / "DEBIAN/control"
    lines = [f"Version: {LOWER_VERSION}" if line.startswith("Version:") else line
             for line in control.read_text(encoding="utf-8").splitlines()]
    control.write_text("\n".join(lines) + "\n", encoding="utf-8")
    lower = folder / f"{package.stem.split('_')[0]}_{LOWER_VERSION}_amd64.deb"
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, lower], check=True, timeout=120,
                   stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return lower


def list_files(package):
    text = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True, timeout=120).stdout
    return {line.split(maxsplit=5)[5].removeprefix(".") for line in text.splitlines() if not line.endswith("/")}


class PackageTest(unittest.TestCase):
    maxDiff = None

    def test_each_has_what_it_should_and_nothing_else(self):
        expected = {name: files for name, files in CONTENTS.items()
                    if name != "libgpuperf-injector" or (BUILD / "injector/libgpuperf_injector.so").exists()}
        for name, files in expected.items():
            with self.subTest(name):
                common = {f"/usr/share/doc/{name}/{file}"
                          for file in ("copyright", "changelog.gz", "changelog.Debian.gz")}
                self.assertEqual(list_files(PACKAGES[name]), files | common | {f"/usr/share/lintian/overrides/{name}"})
        self.assertEqual(set(PACKAGES) - {DASHBOARDS}, set(expected))

    def test_dashboards_and_rules_are_in_a_package_that_fits_every_machine(self):
        if DASHBOARDS not in PACKAGES:
            self.skipTest("there are no dashboards in deploy/grafana and no rules in deploy/prometheus")
        files = {path for path in list_files(PACKAGES[DASHBOARDS]) if path.startswith("/usr/share/gpuperf/")}
        self.assertTrue(files)
        self.assertTrue(PACKAGES[DASHBOARDS].name.endswith("_all.deb"), PACKAGES[DASHBOARDS])

    def test_lintian_finds_no_error_and_no_warning(self):
        result = subprocess.run(["lintian", "--allow-root", "--tag-display-limit", "0", "--fail-on", "error,warning",
                                 *PACKAGES.values()], capture_output=True, text=True, timeout=900, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)

    def test_what_they_depend_on_is_in_debian_12_itself(self):
        for name, package in PACKAGES.items():
            depends = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True,
                                     check=True).stdout
            self.assertNotIn("bpo", depends, name)  # of backports


def prepare(root):
    # In images of containers: starts no service at all.
    (root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
    for name in ("gpuperfd", "gpuperfctl"):
        shutil.copy(PACKAGES[name], root / "root")
        make_lower_version(PACKAGES[name], root / "root")


class LifeTest(unittest.TestCase):
    """One machine from the first installation to the purge."""
    maxDiff = None

    def setUp(self):
        self.others = bpf_objects()
        self.bed = SystemdBed(prepare)
        self.enterContext(self.bed)

    def install(self, version):
        files = [f"/root/{PACKAGES[name].name if version is None else f'{name}_{version}_amd64.deb'}"
                 for name in ("gpuperfd", "gpuperfctl")]
        self.bed.run("dpkg", "-i", *files)

    def state(self):
        return self.bed.show(SERVICE, "ActiveState", "UnitFileState", "MainPID")

    def query(self, *arguments):
        return json.loads(self.bed.run("gpuperfctl", *arguments, "-o", "json").stdout)

    def files(self):
        """Every file there is, and users and groups."""
        prune = [part for folder in NOT_OURS for part in ("-path", folder, "-prune", "-o")]
        found = self.bed.run("find", "/", "-xdev", *prune, "-print").stdout.splitlines()
        found += self.bed.run("find", "/run/gpuperf", "/etc/systemd/system", check=False).stdout.splitlines()
        found += self.bed.run("cut", "-d:", "-f1", "/etc/passwd", "/etc/group").stdout.splitlines()
        # Copies that tools keep of the files they change.
        return {path for path in found if not path.endswith("-") and not path.endswith(".lock")}

    def make_slow_call(self):
        config = {"custom_sym": {"cause_sleep": {"symbol": "cause_sleep", "slow_threshold_ms": 5}},
                  "libraries": {"custom_sym": [str(WORKLOADS / "known_causes")]}}
        path = f"/proc/{self.bed.pid}/root/etc/gpuperf/config.json"
        pathlib.Path(path).write_text(json.dumps(config), encoding="utf-8")
        self.bed.run("systemctl", "reload", SERVICE)
        wait_until("the probe is attached", lambda: self.bed.show(SERVICE, "StatusText") == "1 probe in 1 file", 20)
        self.bed.run(WORKLOADS / "known_causes", "--cause", "sleep", "--ms", 20)
        return wait_until("the slow call", lambda: self.query("slow", "list"))[0]["id"]

    def test_install_upgrade_remove_and_purge(self):
        before = self.files()

        self.install(LOWER_VERSION)

        old = self.state()
        self.assertEqual((old["ActiveState"], old["UnitFileState"]), ("active", "enabled"))
        self.assertEqual(self.query("status")["problems"], [])
        slow_id = self.make_slow_call()

        self.install(None)

        new = self.state()
        self.assertEqual((new["ActiveState"], new["UnitFileState"]), ("active", "enabled"))
        self.assertNotEqual(new["MainPID"], old["MainPID"])  # the new program runs
        self.assertEqual([call["id"] for call in self.query("slow", "list")], [slow_id])  # from the store
        self.assertIn("cause_sleep", self.bed.run("cat", "/etc/gpuperf/config.json").stdout)

        self.bed.run("dpkg", "--remove", "gpuperfd")

        self.assertNotEqual(self.bed.run("systemctl", "is-active", SERVICE, check=False).returncode, 0)
        wait_until("nothing of ours in the kernel", lambda: bpf_objects() <= self.others, 5)
        self.assertIn("cause_sleep", self.bed.run("cat", "/etc/gpuperf/config.json").stdout)
        self.bed.run("test", "-s", "/var/lib/gpuperf/slow_calls.db")

        self.bed.run("dpkg", "--purge", "gpuperfd", "gpuperfctl")

        self.assertEqual(self.files() ^ before, set())

    def test_what_an_administrator_disabled_stays_so_over_an_upgrade(self):
        self.install(LOWER_VERSION)
        self.bed.run("systemctl", "disable", SERVICE)

        self.install(None)

        self.assertEqual(self.bed.show(SERVICE, "UnitFileState"), "disabled")

    def test_an_upgrade_over_a_configuration_with_errors_ends_and_the_status_says_why(self):
        self.install(LOWER_VERSION)
        path = f"/proc/{self.bed.pid}/root/etc/gpuperf/config.json"
        pathlib.Path(path).write_text("{", encoding="utf-8")

        self.install(None)

        self.assertEqual(self.bed.show(SERVICE, "ActiveState"), "failed")
        self.assertIn("/etc/gpuperf/config.json", self.bed.journal("-u", SERVICE))
        self.assertEqual(self.bed.run("dpkg-query", "-W", "-f", "${db:Status-Status}", "gpuperfd").stdout, "installed")


if __name__ == "__main__":
    unittest.main(verbosity=2)
