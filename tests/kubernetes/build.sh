#!/usr/bin/env bash
# Builds the server programs of Kubernetes 1.20 from Debian's own source package, for kubernetes_test.py.
#
# usage: tests/kubernetes/build.sh FOLDER
#   FOLDER   outside the source tree; the programs come to FOLDER/bin and stay there: a second call does
#            nothing. The sources and the compiler's cache, FOLDER/work, take 2.5 GB and may be removed.
#
# Needs root, for the packages. Takes 20 minutes of processor time once; it runs at the lowest priority
# and on one processor, so that a machine in use stays so, and goes on where it was interrupted.
# Debian packages the clients of Kubernetes only, but its source package holds the servers as well.
set -euo pipefail

readonly PROGRAMS=(kubelet kube-apiserver kube-controller-manager kube-scheduler)
# No clouds, no Docker, no debugging data: less to compile.
readonly BUILD=(go build -p 1 -tags providerless,dockerless -gcflags all=-dwarf=false)

fail() {
  echo "tests/kubernetes/build.sh: $*" >&2
  exit 1
}

# Fetches and unpacks the source package by a list of sources made from the machine's own list of
# binary packages, beside it: nothing of apt's configuration changes.
fetch_sources() {
  [[ -d $sources/cmd/kubelet ]] && return
  local apt=$work/apt package
  mkdir -p "$apt/lists/partial" "$(dirname "$sources")"
  apt-get indextargets 'Created-By: Packages' 'Origin: Debian' \
    --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' | sort -u >"$apt/sources.list"
  [[ -s $apt/sources.list ]] || fail "apt knows no archive of Debian; its lists may be missing: apt-get update"
  local options=(-q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::State::lists="$apt/lists" -o APT::Sandbox::User=root)
  echo "fetching the source package kubernetes"
  apt-get "${options[@]}" update >"$work/fetch.log" 2>&1 &&
    (cd "$work" && apt-get "${options[@]}" source --download-only kubernetes >>"$work/fetch.log" 2>&1) ||
    { tail -n 20 "$work/fetch.log" >&2; fail "the source package could not be fetched (above)"; }
  package=$(echo "$work"/kubernetes_1.20.*.dsc)
  [[ -f $package ]] || fail "Debian's kubernetes is no longer 1.20: see $work/kubernetes_*.dsc"
  rm -rf "$work/unpacked"  # of an interrupted call
  dpkg-source --no-check -x "$package" "$work/unpacked" >>"$work/fetch.log"
  mv "$work/unpacked" "$sources"
}

# The one generated file that the package's source lacks: the API's description, without which the
# API server refuses to start.
generate_openapi() {
  local output=pkg/generated/openapi/zz_generated.openapi.go folders
  [[ -f $output ]] && return
  echo "generating the description of the API"
  "${BUILD[@]}" -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
  folders=$(grep -rl '+k8s:openapi-gen=' --include='*.go' cmd pkg plugin vendor/k8s.io/*/ |
    grep -v -e /code-generator/ -e /sample-apiserver/ | xargs -n 1 dirname | LC_ALL=C sort -u |
    sed 's#^#k8s.io/kubernetes/#' | paste -sd ,)
  "$work/openapi-gen" -i "$folders" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi.new \
    -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/api_violations.txt"
  mv "${output%.go}.new.go" "$output"
}

build_program() {
  [[ -x $folder/bin/$1 ]] && return
  echo "building $1 ($(date -u +%H:%M) UTC)"
  local version=k8s.io/kubernetes/vendor/k8s.io/component-base/version
  "${BUILD[@]}" -o "$work/$1" -ldflags "-s -w -X $version.gitMajor=1 -X $version.gitMinor=20 \
    -X $version.gitVersion=v1.20.2" "k8s.io/kubernetes/cmd/$1"
  mv "$work/$1" "$folder/bin/$1"
}

[[ $# -eq 1 ]] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
"$(dirname "$0")/../../deploy/install_packages.sh" kubernetes
mkdir -p "$1/bin" "$1/work"
folder=$(cd "$1" && pwd)
work=$folder/work
sources=$work/go/src/k8s.io/kubernetes

renice -n 19 -p $$ >/dev/null
# Module mode refuses the vendored go.mod of this release, so it is built the old way, from GOPATH.
export PATH=/usr/lib/go-1.19/bin:$PATH GO111MODULE=off GOPATH=$work/go GOCACHE=$work/cache GOMAXPROCS=1 CGO_ENABLED=0
export GOFLAGS='' GOTMPDIR=$work/tmp
mkdir -p "$GOTMPDIR"
for program in "${PROGRAMS[@]}"; do
  [[ -x $folder/bin/$program ]] && continue
  fetch_sources
  cd "$sources"
  [[ $program == kube-apiserver ]] && generate_openapi
  build_program "$program"
done
echo "built in $folder/bin: ${PROGRAMS[*]}"
