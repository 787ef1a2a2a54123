#!/usr/bin/env bash
# Installs the Debian packages that gpuperf needs, and only those that are missing.
#
# usage: install_packages.sh GROUP...     GROUP: build | release | tests | kubernetes (tests/kubernetes only)
#
# Needs root and apt when something is missing; does nothing, and needs no network, when nothing is.
set -euo pipefail

readonly BUILD_PACKAGES=(
  cmake ninja-build g++ clang lld ccache pkg-config bpftool
  libbpf-dev libzydis-dev libdw-dev liblzma-dev libiberty-dev libabsl-dev libspdlog-dev nlohmann-json3-dev libcli11-dev
  libgrpc++-dev libssl-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc grpc-proto
  prometheus-cpp-dev libcpp-httplib-dev libsqlite3-dev libsystemd-dev zlib1g-dev
  libgtest-dev libgmock-dev
  jq python3 util-linux
)
readonly RELEASE_PACKAGES=(
  binutils dpkg-dev git openssl patchelf
)
readonly TESTS_PACKAGES=(
  binutils clang-format libclang-rt-dev llvm curl git openssl procps psmisc
  prometheus prometheus-alertmanager
  python3-jsonschema python3-protobuf python3-yaml
  libtorch-dev systemtap-sdt-dev libpython3-dev
  podman runc
  gdb musl-tools strace
  zsh fish
  systemd dpkg-dev lintian mandoc patchelf
  chromium chromium-driver fonts-dejavu-core
  busybox-static cpio
)
readonly KUBERNETES_PACKAGES=(
  containerd containernetworking-plugins runc iproute2 bpftool binutils
  etcd-server openssl
  golang-1.19-go dpkg-dev patch
  protobuf-compiler python3-grpcio python3-protobuf python3-yaml
)

fail() {
  echo "install_packages: $*" >&2
  exit 1
}

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# Runs apt-get quietly; its output is shown only when it fails.
run_apt() {
  if ! DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get "$@" >"$apt_log" 2>&1; then
    tail -n 30 "$apt_log" >&2
    return 1
  fi
}

[[ $# -gt 0 ]] || fail "name at least one group: build, release, tests, kubernetes"
wanted=()
for group in "$@"; do
  case "$group" in
    build) wanted+=("${BUILD_PACKAGES[@]}") ;;
    release) wanted+=("${RELEASE_PACKAGES[@]}") ;;
    tests) wanted+=("${TESTS_PACKAGES[@]}") ;;
    kubernetes) wanted+=("${KUBERNETES_PACKAGES[@]}") ;;
    *) fail "no group named '$group'; the groups are: build, release, tests, kubernetes" ;;
  esac
done

command -v dpkg-query >/dev/null ||
  fail "this needs a Debian system (dpkg and apt-get); elsewhere install by hand: ${wanted[*]}"
missing=()
for package in "${wanted[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "packages: all ${#wanted[@]} installed"
  exit 0
fi

[[ $EUID -eq 0 ]] || fail "${#missing[@]} packages are missing and only root can install them." \
  "Run this as root, or: sudo apt-get install ${missing[*]}"
apt_log=$(mktemp)
trap 'rm -f "$apt_log"' EXIT

echo "packages: installing ${#missing[@]} of ${#wanted[@]}: ${missing[*]}"
# A list that cannot be refreshed (one broken source among several) need not stop the installation.
run_apt -q update ||
  echo "packages: apt-get update failed (above); trying with the lists at hand" >&2
run_apt -q install -y --no-install-recommends "${missing[@]}" ||
  fail "apt-get could not install the missing packages (its last lines are above). Check the" \
    "network and /etc/apt/sources.list, run 'apt-get update', and try again"
echo "packages: done"
