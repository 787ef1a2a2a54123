#!/usr/bin/env python3
"""Writes a release's software bill of materials (SPDX 2.3, JSON) and collects the licenses of what the release contains.

What is listed: gpuperf with its commit and how it was compiled, each Debian package whose shared library is in the tarball, each
package that is compiled into the programs, and each file of the tarball, but the SBOM itself, with its checksums. Versions and
license texts come from the packages installed here.

usage: make_sbom.py --version V --revision COMMIT --created EPOCH --build FOLDER --libraries LIST --tree FOLDER
                    --licenses FOLDER [--viewer FOLDER] --output FILE
    LIST holds the lines that bundle_libraries.sh prints; --tree is the tarball's, complete but for the SBOM and --licenses,
    which is within it and is written; --viewer names the npm package of the page's timeline viewer, if it is embedded
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

# As declared in /usr/share/doc/PACKAGE/copyright for the library's own files; SPDX expressions.
LICENSES = {
    "libabsl20220623": "Apache-2.0",
    "libbpf1": "LGPL-2.1-only OR BSD-2-Clause",
    "libbz2-1.0": "bzip2-1.0.6",
    "libc-ares2": "MIT",
    "libcap2": "BSD-3-Clause OR GPL-2.0-only",
    "libdw1": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libelf1": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libfmt9": "MIT",
    "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgcrypt20": "LGPL-2.1-or-later",
    "libgpg-error0": "LGPL-2.1-or-later",
    "libgrpc++1.51": "Apache-2.0",
    "libgrpc29": "Apache-2.0",
    "liblz4-1": "BSD-2-Clause",
    "liblzma5": "LicenseRef-liblzma-public-domain",
    "libprometheus-cpp-core1.0": "MIT",
    "libprotobuf32": "BSD-3-Clause",
    "libre2-9": "BSD-3-Clause",
    "libspdlog1.10": "MIT",
    "libsqlite3-0": "blessing",
    "libssl3": "Apache-2.0",
    "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libsystemd0": "LGPL-2.1-or-later",
    "libzstd1": "BSD-3-Clause OR GPL-2.0-only",
    "libzydis4.0": "MIT",
    "zlib1g": "Zlib",
}
# Compiled in: header-only libraries and static ones.
COMPILED_IN = {
    "libcli11-dev": "BSD-3-Clause",
    "libgcc-12-dev": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libiberty-dev": "LGPL-2.0-or-later",
    "nlohmann-json3-dev": "MIT",
    "prometheus-cpp-dev": "MIT",
}
EXTRACTED = [{"licenseId": "LicenseRef-liblzma-public-domain", "name": "liblzma: public domain",
              "extractedText": "liblzma is in the public domain."}]
COMMON_LICENSES = pathlib.Path("/usr/share/common-licenses")
PRIVATE = "lib/gpuperf/private"
MAIN = "daemon/app/main.cpp"  # compiled as all of the programs is
PROJECT_ID = "SPDXRef-Package-gpuperf"


def fail(text):
    sys.exit(f"make_sbom: {text}")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def make_id(kind, name):
    return f"SPDXRef-{kind}-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}"


def find_packages(libraries):
    """{library: Debian package} for [(library, path)]. dpkg knows a path with or without /usr."""
    paths = {}
    for name, path in libraries:
        real = str(pathlib.Path(path).resolve())
        paths[real] = paths[real.removeprefix("/usr")] = name
    packages = {}
    for line in run("dpkg-query", "-S", *paths).splitlines():
        package, _, path = line.partition(": ")
        if path in paths:
            packages[paths[path]] = package.split(":")[0]
    for name, path in libraries:
        if name not in packages:
            fail(f"{path} belongs to no Debian package: a release contains libraries of Debian packages only")
    return packages


def read_versions(packages):
    form = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n"
    rows = {}
    for line in run("dpkg-query", "-W", "-f", form, *packages).splitlines():
        package, version, architecture, source, source_version = line.split("\t")
        if version and architecture in ("amd64", "all"):
            rows[package] = (version, architecture, source, source_version)
    for package in packages:
        if package not in rows:
            fail(f"{package} is not installed. Run: deploy/install_packages.sh build release")
    return rows


def describe_debian_package(name, row, declared):
    version, architecture, source, source_version = row
    return {"SPDXID": make_id("Package", name), "name": name, "versionInfo": version,
            "supplier": "Organization: Debian", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "sourceInfo": f"Debian 12 source package {source} {source_version}",
            "licenseConcluded": "NOASSERTION", "licenseDeclared": declared, "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:deb/debian/{name.replace('+', '%2B')}@"
                                                  f"{version.replace('+', '%2B').replace(':', '%3A')}"
                                                  f"?arch={architecture}&distro=debian-12"}]}


def describe_compilation(build):
    """The compiler's version, and the flags that decide what it makes of a source."""
    rows = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    (command,) = [row["command"] for row in rows if row["file"].endswith("/" + MAIN)]
    words = shlex.split(command)
    flags = [word for word in words if re.match(r"-[OfgmWD]|-std=", word)]
    # Behind a launcher like ccache the compiler is the second word.
    compiler = next(word for word in words if re.search(r"(\+\+|g?cc|clang)[-0-9.]*$", word) and "ccache" not in word)
    return f"{run(compiler, '--version').splitlines()[0]}: {' '.join(flags)}"


def describe_project(version, revision, build):
    return {"SPDXID": PROJECT_ID, "name": "gpuperf", "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "sourceInfo": f"git commit {revision}", "comment": f"compiled by {describe_compilation(build)}",
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "Apache-2.0 AND (BSD-2-Clause OR GPL-2.0-only)",
            "licenseComments": "The programs in bpf/ are BSD-2-Clause or GPL-2.0-only, all else is Apache-2.0.",
            "copyrightText": "2026 the gpuperf authors"}


def describe_viewer(folder):
    package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    name, version = package["name"], package["version"]
    return {"SPDXID": make_id("Package", f"npm-{name}"), "name": name, "versionInfo": version,
            "downloadLocation": f"https://registry.npmjs.org/{name}/-/{name}-{version}.tgz", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": package.get("license", "NOASSERTION"),
            "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:npm/{name}@{version}"}]}


def describe_file(path, name):
    """A file of the tarball, by its name there."""
    content = path.read_bytes()
    return {"SPDXID": make_id("File", name), "fileName": f"./{name}",
            "fileTypes": ["BINARY" if content.startswith(b"\x7fELF") else "OTHER"], "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
            "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(content).hexdigest()},
                          {"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()}]}


def relate(element, kind, other):
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}


def collect_licenses(packages, viewer, folder):
    """PACKAGE, and in common-licenses/ the texts to which those refer by Debian's path."""
    (folder / "common-licenses").mkdir(parents=True, exist_ok=True)
    wanted = set()
    for package in packages:
        text = pathlib.Path("/usr/share/doc", package, "copyright").read_text(encoding="utf-8", errors="replace")
        (folder / package).write_text(text, encoding="utf-8")
        wanted.update(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text))
    for name in sorted(wanted):
        if (COMMON_LICENSES / name).is_file():
            shutil.copyfile(COMMON_LICENSES / name, folder / "common-licenses" / name)
    if viewer:
        shutil.copyfile(viewer / "LICENSE", folder / viewer.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("version", "revision", "created", "libraries", "output"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("build", "tree", "licenses"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    parser.add_argument("--viewer", type=pathlib.Path)
    options = parser.parse_args()

    lines = pathlib.Path(options.libraries).read_text(encoding="utf-8").splitlines()
    owners = find_packages([line.split() for line in lines])
    linked = sorted(set(owners.values()))
    for package in linked:
        if package not in LICENSES:
            fail(f"the license of {package} is not known: read /usr/share/doc/{package}/copyright and add it to LICENSES "
                 f"in {__file__}")
    versions = read_versions([*linked, *COMPILED_IN])

    packages = [describe_project(options.version, options.revision, options.build)]
    relations = [relate("SPDXRef-DOCUMENT", "DESCRIBES", PROJECT_ID)]
    for package in linked:
        packages.append(describe_debian_package(package, versions[package], LICENSES[package]))
        relations.append(relate(PROJECT_ID, "DYNAMIC_LINK", packages[-1]["SPDXID"]))
    for package, declared in COMPILED_IN.items():
        packages.append(describe_debian_package(package, versions[package], declared))
        relations.append(relate(PROJECT_ID, "STATIC_LINK", packages[-1]["SPDXID"]))
    if options.viewer:
        packages.append(describe_viewer(options.viewer))
        relations.append(relate(PROJECT_ID, "CONTAINS", packages[-1]["SPDXID"]))
    collect_licenses([*linked, *COMPILED_IN], options.viewer, options.licenses)
    files = []
    for path in sorted(path for path in options.tree.rglob("*") if path.is_file()):
        name = str(path.relative_to(options.tree))
        files.append(describe_file(path, name))
        package = owners.get(name.removeprefix(PRIVATE + "/"))
        relations.append(relate(files[-1]["SPDXID"], "GENERATED_FROM", make_id("Package", package)) if package else
                         relate(PROJECT_ID, "CONTAINS", files[-1]["SPDXID"]))

    created = datetime.datetime.fromtimestamp(int(options.created), datetime.timezone.utc)
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
                "name": f"gpuperf-{options.version}",
                "documentNamespace": f"https://gpuperf.invalid/spdx/gpuperf-{options.version}-{options.revision}",
                "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                                 "creators": ["Tool: gpuperf-make_sbom"]},
                "hasExtractedLicensingInfos": EXTRACTED, "packages": packages, "files": files,
                "relationships": relations}
    pathlib.Path(options.output).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
