#!/usr/bin/env bash
# Makes a release from a git tag: Debian packages, a tarball for any distribution with glibc 2.36 or later, the chart, the image,
# man pages, an SBOM (SPDX 2.3) and SHA256SUMS, the last two signed. Needs Debian 12; root where packages are missing.
#
# usage: deploy/release.sh [--tag vX.Y.Z] [--output DIR] [--build DIR] [--no-image] [--sign KEY]
#   --tag vX.Y.Z   the release to make; it must be what is checked out (default: the tag of the checked-out commit)
#   --output DIR   where the files go; must be empty or new (default: build-release/dist)
#   --build DIR    use this finished build of the same version instead of building in build-release
#   --no-image     leave the image out
#   --sign KEY     the releaser's private key (PEM, EC or RSA): writes FILE.sig for the SBOM and SHA256SUMS. A new one:
#                  openssl ecparam -name prime256v1 -genkey -noout -out KEY && openssl ec -in KEY -pubout -out release.pub
set -euo pipefail
umask 022

readonly GLIBC_VERSION=2.36  # Debian 12's; the tarball runs on this and later versions

fail() {
  echo "release: $*" >&2
  exit 1
}

usage() {
  sed -n '5,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

step() { echo "release: $*"; }

# Runs a command whose output matters only if it fails.
quietly() {
  "$@" >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    fail "$(basename "$1") failed; the end of its output is above"
  }
}

tag='' output='' build='' key='' with_image=yes
while [[ $# -gt 0 ]]; do
  case "$1" in
    --tag | --output | --build | --sign)
      [[ $# -ge 2 ]] || usage
      case "$1" in
        --tag) tag=$2 ;;
        --output) output=$(realpath -m "$2") ;;
        --build) build=$(realpath -m "$2") ;;
        --sign) key=$(realpath -m "$2") ;;
      esac
      shift
      ;;
    --no-image) with_image=no ;;
    *) usage ;;
  esac
  shift
done
cd "$(dirname "$0")/.."

# ---- What is released: a clean checkout of a tag that says the version ----
git rev-parse --git-dir >/dev/null || fail "$PWD is not a git clone, and a release is made from a git tag"
if [[ -z $tag ]]; then
  tag=$(git describe --tags --exact-match --match 'v*' HEAD 2>/dev/null) ||
    fail "the checked-out commit $(git rev-parse --short HEAD) has no version tag. Check out a release (git checkout vX.Y.Z)," \
      "or tag this commit (git tag -a vX.Y.Z) and run this again"
fi
[[ $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "'$tag' is not a release tag: these have the form vX.Y.Z"
commit=$(git rev-parse --verify --quiet "refs/tags/$tag^{commit}") ||
  fail "there is no tag $tag here. Fetch it (git fetch --tags), or make it: git tag -a $tag"
[[ $commit == "$(git rev-parse HEAD)" ]] ||
  fail "tag $tag is not the checked-out commit. Run: git checkout $tag"
changes=$(git status --porcelain)
[[ -z $changes ]] ||
  fail "the working tree has changes that $tag does not contain. Commit them and tag again, or put them aside" \
    "(git stash --include-untracked):"$'\n'"$(head -n 10 <<<"$changes")"

readonly version=${tag#v}
# check_version FILE EXPRESSION: the version in FILE, as sed finds it, is the tag's.
check_version() {
  local found
  found=$(sed -nE "$2" "$1" | head -n 1)
  [[ $found == "$version" ]] ||
    fail "tag $tag does not match $1, which says ${found:-no version}. Set it to $version in $1, commit, and tag that commit:" \
      "git tag -fa $tag"
}
check_version CMakeLists.txt 's/^project\(gpuperf VERSION ([0-9.]+).*/\1/p'
check_version deploy/chart/Chart.yaml 's/^version: *"?([0-9.]+)"?$/\1/p'
check_version deploy/chart/Chart.yaml 's/^appVersion: *"?([0-9.]+)"?$/\1/p'

# sign FILE: beside it, FILE.sig
sign() { openssl dgst -sha256 -sign "$key" -out "$1.sig" "$1"; }
if [[ -n $key ]]; then
  # Before the long part.
  openssl dgst -sha256 -sign "$key" -out /dev/null /dev/null ||
    fail "openssl cannot sign with $key (above). It must be a private EC or RSA key in PEM; --sign's help makes one"
fi

output=${output:-$PWD/build-release/dist}
mkdir -p "$output"
[[ -z $(ls -A "$output") ]] || fail "$output is not empty. Remove it (rm -r $output), or choose another folder with --output"

readonly name=gpuperf-$version-linux-x86_64
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH  # the same commit gives the same archives
work=$(mktemp -d)
readonly work
trap 'rm -rf "$work"' EXIT
readonly dist=$work/dist tree=$work/$name
mkdir "$dist" "$tree"

# make_tar FILE TAR_ARGUMENT...
make_tar() {
  local file=$1
  shift
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$@" | gzip -9n >"$file"
}

# ---- Build ----
if [[ -z $build ]]; then
  build=build-release
  deploy/install_packages.sh build release
  deploy/fetch_viewer.sh "$build"
  step "building in $build"
  quietly cmake --preset release -B "$build" -DGPUPERF_TESTS=OFF -DGPUPERF_PACKAGE_VERSION="$version"
  cmake --build "$build"
fi
[[ -f $build/CPackConfig.cmake ]] || fail "$build is not a build folder of gpuperf. Leave --build out to build one"
found=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
[[ $found == "$version" ]] || fail "$build was built from version ${found:-unknown}, not $version. Leave --build out to build $tag"
for program in daemon/gpuperfd client/gpuperfctl; do
  [[ -x $build/$program ]] || fail "$build/$program is missing. Run: cmake --build $build"
done
[[ -f $build/injector/libgpuperf_injector.so ]] ||
  fail "$build has no injected library, because CUPTI's headers were not found. Install a CUDA toolkit, or set CUDA_HOME to" \
    "one, and build again"

# ---- Debian packages ----
step "Debian packages"
quietly cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/cpack"
mapfile -t packages < <(find "$work/cpack" -maxdepth 1 -name '*.deb' | sort)
for package in "${packages[@]}"; do
  [[ $(basename "$package") == *_"$version"-1_* ]] ||
    fail "$(basename "$package") has another version than $tag. Run: cmake -DGPUPERF_PACKAGE_VERSION=$version $build"
  dpkg-deb -x "$package" "$work/root"
  cp "$package" "$dist/"
done

# ---- Tarball: what the packages install, with the libraries ----
step "tarball"
cp -a "$work/root/usr/." "$tree/"
cp -a "$work/root/etc" "$tree/"
doc=$tree/share/doc/gpuperf
changelog=$work/root/usr/share/doc/gpuperfd/changelog.gz
rm -r "$tree/share/lintian" "$tree/share/doc"
mkdir -p "$doc" "$tree/share/zsh/site-functions"
mv "$tree/share/zsh/vendor-completions/_gpuperfctl" "$tree/share/zsh/site-functions/"  # vendor-completions is Debian's
rmdir "$tree/share/zsh/vendor-completions"
cp "$changelog" "$doc/"
cp LICENSE "$doc/"
cp bpf/LICENSE "$doc/LICENSE.bpf"
cp LICENSE "$tree/"
install -m 0755 deploy/install.sh "$tree/"
deploy/bundle_libraries.sh "$tree/lib/gpuperf/private" "$tree/bin/gpuperfctl" "$tree/sbin/gpuperfd" >"$work/libraries"
needed=$(objdump -T "$tree"/bin/* "$tree"/sbin/* "$tree"/lib/gpuperf/*.so "$tree"/lib/gpuperf/private/* |
  grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -V | tail -n 1)
[[ $(printf '%s\n' "$needed" "$GLIBC_VERSION" | sort -V | tail -n 1) == "$GLIBC_VERSION" ]] ||
  fail "the programs need glibc $needed, and releases promise $GLIBC_VERSION. Make the release on Debian 12"

sbom=(--version "$version" --revision "$commit" --created "$SOURCE_DATE_EPOCH" --build "$build" --libraries "$work/libraries"
  --tree "$tree" --licenses "$doc/licenses" --output "$dist/gpuperf-$version.spdx.json")
viewer=$build/viewer/node_modules/speedscope
if [[ -d $viewer ]]; then sbom+=(--viewer "$viewer"); fi
/usr/bin/python3 deploy/make_sbom.py "${sbom[@]}"
cp "$dist/gpuperf-$version.spdx.json" "$doc/sbom.spdx.json"
make_tar "$dist/$name.tar.gz" -C "$work" "$name"

# ---- Man pages, chart ----
step "man pages and chart"
make_tar "$dist/gpuperf-$version-man.tar.gz" -C "$tree/share" man
# As `helm package` lays it out; links become files.
make_tar "$dist/gpuperf-$version.tgz" -C deploy --dereference --hard-dereference --exclude-from=deploy/chart/.helmignore \
  --exclude=.helmignore --exclude=__pycache__ --transform='s,^chart,gpuperf,' chart

# ---- Image ----
make_image() {
  local tool image=gpuperf:$version file=$dist/gpuperf-$version-image.tar folder=$work/image
  for tool in docker podman buildah; do
    if "$tool" info >/dev/null 2>&1; then break; fi
    tool=''
  done
  if [[ -z $tool ]]; then
    step "no image: neither docker, podman nor buildah works here"
    return
  fi
  step "image, with $tool"
  mkdir "$folder"
  cp "${packages[@]}" deploy/place_injector.sh "$folder/"
  "$tool" build -f deploy/Dockerfile -t "$image" --build-arg "VERSION=$version" --build-arg "REVISION=$commit" "$folder" ||
    fail "$tool could not build the image (above). To leave it out: --no-image"
  if [[ $tool == buildah ]]; then
    buildah push "$image" "docker-archive:$file:$image"
  else
    "$tool" save -o "$file" "$image"
  fi
  gzip -9n "$file"
}
if [[ $with_image == yes ]]; then make_image; else step "no image, as asked"; fi

(cd "$dist" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
if [[ -n $key ]]; then
  sign "$dist/gpuperf-$version.spdx.json"
  sign "$dist/SHA256SUMS"
else
  step "not signed: no --sign KEY"
fi
mv "$dist"/* "$output/"
step "$tag is in $output:"
(cd "$output" && du -h --apparent-size -- * | sed 's/^/  /')
