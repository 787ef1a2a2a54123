#!/usr/bin/env bash
# Measures the build from a clean clone of HEAD, without ccache: what quickstart builds, everything, and one-line changes.
#
# usage: tests/bench/build_time.sh [--keep FOLDER]
#   --keep FOLDER   clone into FOLDER and leave it there (default: a temporary folder, removed at the end)
#
# Prints wall time and CPU time of each step in seconds. Nothing else should run on the machine. The figures that
# docs/contributing.md promises come from here.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=
case "${1:-}" in
  "") folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT ;;
  --keep) folder=${2:?--keep needs a folder} ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

export CCACHE_DISABLE=1
readonly CHANGED=(client/cmd_status.cpp client/table.cpp daemon/state/budget.cpp daemon/state/function_stats.cpp)

# measure NAME COMMAND...: its times, or its output where it fails.
measure() {
  local name=$1 log="$folder/log"
  shift
  TIMEFORMAT='%R %U %S'
  local times
  times=$( { time "$@" >"$log" 2>&1; } 2>&1 ) || { tail -n 40 "$log" >&2; exit 1; }
  read -r wall user system <<<"$times"
  printf '%-44s %8.1f s wall %8.1f s CPU\n' "$name" "$wall" "$(awk "BEGIN { print $user + $system }")"
}

git clone --quiet . "$folder/gpuperf"
cd "$folder/gpuperf"
deploy/fetch_viewer.sh build >/dev/null
measure "configure" cmake --preset release
measure "what deploy/quickstart.sh builds" cmake --build build --target gpuperfd gpuperfctl cuda_calls
measure "everything else" cmake --build build
for file in "${CHANGED[@]}"; do
  echo "// One line more." >>"$file"
  measure "one line changed in $file" cmake --build build
done
