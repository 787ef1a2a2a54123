#!/usr/bin/env bash
# From a fresh clone to a table of CUDA library calls: installs what is missing, builds, starts the
# daemon, runs a program that calls the CUDA libraries, shows what gpuperf saw, and stops again.
# Needs root and Debian 12; no GPU.
#
# usage: deploy/quickstart.sh [--keep]
#   --keep   leave the daemon running and say how to look at it and how to stop it
#
# Exit code: 0 when everything was shown and every CUDA runtime call was counted exactly, else 1.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly WORKLOAD_SECONDS=6
readonly START_LIMIT_SECONDS=20   # loading the BPF programs takes 1-2 s on a small machine
readonly ATTACH_LIMIT_SECONDS=20
readonly STOP_LIMIT_SECONDS=15
# Without a GPU most calls fail within microseconds: this low, the slowest of them still are "slow".
readonly SLOW_THRESHOLD_MS=0.1

keep=no
case "${1:-}" in
  "") ;;
  --keep) keep=yes ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

readonly WORK_DIR=$PWD/.quickstart # logs and results; kept for a look afterwards
readonly CTL=$PWD/build/client/gpuperfctl
readonly DAEMON=$PWD/build/daemon/gpuperfd
runtime_dir='' daemon_pid='' workload_pid=''

step() { printf '\n== %s\n' "$*"; }

fail() {
  printf '\nquickstart failed: %s\n' "$*" >&2
  exit 1
}

stop_daemon() {
  [[ -n $daemon_pid ]] || return 0
  kill -TERM "$daemon_pid" 2>/dev/null || true
  for ((tenth = 0; tenth < STOP_LIMIT_SECONDS * 10; tenth++)); do
    kill -0 "$daemon_pid" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$daemon_pid" 2>/dev/null; then
    echo "gpuperfd did not stop within $STOP_LIMIT_SECONDS s of SIGTERM and is killed" >&2
    kill -KILL "$daemon_pid"
  fi
  wait "$daemon_pid" 2>/dev/null || true
  daemon_pid=''
}

# Ends what this script started, whichever way it ends.
cleanup() {
  local status=$?
  trap - EXIT INT TERM
  if [[ -n $workload_pid ]]; then kill "$workload_pid" 2>/dev/null || true; fi
  if [[ $keep == no || $status -ne 0 ]]; then
    stop_daemon
    if [[ -n $runtime_dir ]]; then rm -rf "$runtime_dir"; fi
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ctl() { "$CTL" --address "unix:$runtime_dir/api.sock" "$@"; }

# deploy/config.json with a socket and port of our own and a low threshold.
make_config() {
  /usr/bin/python3 - deploy/config.json "$WORK_DIR/config.json" "$runtime_dir" \
    "$SLOW_THRESHOLD_MS" <<'PYTHON'
import json
import socket
import sys

source, target, runtime_dir, threshold_ms = sys.argv[1:]


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


port = next((port for port in range(9465, 9565) if is_free(port)), None)
if port is None:
    sys.exit("no free port between 9465 and 9564 for /metrics")
with open(source, encoding="utf-8") as file:
    config = json.load(file)
config.setdefault("slow", {})["default_threshold_ms"] = float(threshold_ms)
config.setdefault("stats", {})["interval_ms"] = 250
config.setdefault("metrics", {})["listen"] = f"127.0.0.1:{port}"
config.setdefault("grpc", {})["listen"] = f"unix:{runtime_dir}/api.sock"
config.setdefault("storage", {})["path"] = f"{runtime_dir}/store"
with open(target, "w", encoding="utf-8") as file:
    json.dump(config, file, indent=2)
print(f"127.0.0.1:{port}")
PYTHON
}

start_daemon() {
  # A session of its own: with --keep it outlives this shell, and Ctrl-C reaches it only through us.
  setsid "$DAEMON" --config "$WORK_DIR/config.json" --runtime-dir "$runtime_dir" \
    >"$WORK_DIR/gpuperfd.log" 2>&1 </dev/null &
  daemon_pid=$!
  for ((tenth = 0; tenth < START_LIMIT_SECONDS * 10; tenth++)); do
    ctl status >/dev/null 2>&1 && return 0
    if ! kill -0 "$daemon_pid" 2>/dev/null; then
      tail -n 20 "$WORK_DIR/gpuperfd.log" >&2
      daemon_pid=''
      fail "gpuperfd ended while starting; its log is above and in $WORK_DIR/gpuperfd.log"
    fi
    sleep 0.1
  done
  tail -n 20 "$WORK_DIR/gpuperfd.log" >&2
  fail "gpuperfd did not answer within $START_LIMIT_SECONDS s; its log is above and in" \
    "$WORK_DIR/gpuperfd.log"
}

# Waits until the number of probes in files that the workload maps is above 0 and has stopped growing.
wait_for_probes() {
  local before=0 attached=0
  for ((half = 0; half < ATTACH_LIMIT_SECONDS * 2; half++)); do
    sleep 0.5
    attached=$(ctl probes -o json | jq --rawfile maps "/proc/$workload_pid/maps" \
      '[.[] | select(.state == "attached" and (.library as $file | $maps | contains($file + "\n")))] | length')
    if [[ $attached -gt 0 && $attached -eq $before ]]; then
      echo "$attached functions probed, entry and return"
      return 0
    fi
    before=$attached
  done
  ctl status >&2 || true
  fail "no probe was attached within $ATTACH_LIMIT_SECONDS s of the libraries being mapped" \
    "(status above)"
}

run_workload() {
  rm -f "$runtime_dir/go"
  build/tests/workloads/cuda_calls --seconds "$WORKLOAD_SECONDS" --wait-for-file "$runtime_dir/go" \
    >"$WORK_DIR/cuda_calls.json" 2>"$WORK_DIR/cuda_calls.log" &
  workload_pid=$!
  wait_for_probes
  : >"$runtime_dir/go"
  for ((second = 1; second <= WORKLOAD_SECONDS; second++)); do
    sleep 1
    echo "  $second of $WORKLOAD_SECONDS s: $(ctl status -o json | jq .calls) calls counted"
  done
  wait "$workload_pid" || {
    cat "$WORK_DIR/cuda_calls.log" >&2
    fail "cuda_calls ended with an error (above)"
  }
  cat "$WORK_DIR/cuda_calls.log"
  sleep 1 # the daemon reads the kernel's totals four times a second
}

# Compares the program's own counts of CUDA runtime calls with the daemon's. (Only those: cuBLAS and
# cuDNN call themselves and each other, which the daemon sees and the program does not.)
compare_counts() {
  /usr/bin/python3 - "$WORK_DIR/cuda_calls.json" "$WORK_DIR/functions.json" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    truth = json.load(file)["calls"]
with open(sys.argv[2], encoding="utf-8") as file:
    seen = {row["function"]: row["calls"] for row in json.load(file)}
compared = {name: entry["calls"] for name, entry in truth.items()
            if name.startswith("cuda") and name in seen}
wrong = [f"{name}: called {calls} times, counted {seen[name]}"
         for name, calls in compared.items() if seen[name] != calls]
if not compared:
    sys.exit("none of the functions the program called was counted")
if wrong:
    sys.exit("counts differ from the program's own: " + "; ".join(wrong))
print(f"{len(compared)} CUDA runtime functions, {sum(compared.values())} calls: "
      "each counted exactly as often as the program called it")
PYTHON
}

show_slow_call() {
  local id
  id=$(ctl slow list --pid "$1" --limit 1 -o json | jq -r '.[0].id // empty')
  [[ -n $id ]] || fail "no slow call was recorded although the threshold is $SLOW_THRESHOLD_MS ms"
  ctl slow show "$id"
}

# A capture of the workload: who launched what, as a flame graph and on a timeline.
show_capture() {
  local id=$1 weight=cpu work
  ctl trace stop "$id" >/dev/null
  until [[ $(ctl trace show "$id" -o json | jq -r .capture.state) == stored ]]; do sleep 0.2; done
  work=$(ctl trace show "$id" -o json | jq -r .capture.work)
  [[ $work == 0 ]] || weight=gpu
  ctl flamegraph "$id" --weight "$weight" --file "$WORK_DIR/flamegraph.svg"
  ctl trace fetch "$id" --format chrome --file "$WORK_DIR/timeline.json"
  ctl trace fetch "$id" --format report --file "$WORK_DIR/report.html"
  echo "Flame graph of the $weight's time: $WORK_DIR/flamegraph.svg"
  echo "Timeline, for ui.perfetto.dev or chrome://tracing: $WORK_DIR/timeline.json"
  echo "Both and more in one page: $WORK_DIR/report.html"
}

show_metrics() {
  echo "http://$1/metrics"
  /usr/bin/python3 - "http://$1/metrics" <<'PYTHON'
import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
    text = answer.read().decode()
shown = [line for line in text.splitlines() if 'comm="cuda_calls"' in line
         and ('function="cudaMalloc"' in line and "_bucket" not in line
              or line.startswith("gpuperf_function_slow_calls_total") and not line.endswith(" 0"))]
for line in shown:
    print(" ", line)
print(f"  ... and {sum(not line.startswith('#') for line in text.splitlines()) - len(shown)} more")
if not shown:
    sys.exit("/metrics shows no call of cuda_calls")
PYTHON
}

[[ $EUID -eq 0 ]] || fail "run this as root: loading BPF programs needs it (sudo $0)"
begin=$SECONDS

step "1/6 Packages"
deploy/install_packages.sh build

step "2/6 Build (incremental, in build/)"
mkdir -p "$WORK_DIR"
deploy/fetch_viewer.sh build
cmake --preset release >"$WORK_DIR/configure.log" 2>&1 || {
  tail -n 20 "$WORK_DIR/configure.log" >&2
  fail "the build could not be configured; the whole log is in $WORK_DIR/configure.log"
}
grep -o 'cuda_calls: .*' "$WORK_DIR/configure.log" || true
cmake --build build --target gpuperfd gpuperfctl cuda_calls || fail "the build failed (above)"
built=$SECONDS

step "3/6 Daemon"
runtime_dir=$(mktemp -d /run/gpuperf-quickstart.XXXXXX)
metrics_address=$(make_config) || fail "no configuration could be made"
start_daemon
echo "gpuperfd runs as process $daemon_pid, log in $WORK_DIR/gpuperfd.log"

step "4/6 Workload: cuda_calls, $WORKLOAD_SECONDS s"
capture=$(ctl trace start --name quickstart -o json | jq -r .id)
run_workload
pid=$(jq .pid <"$WORK_DIR/cuda_calls.json")

step "5/6 What gpuperf saw"
ctl functions --pid "$pid"
# On a busy machine the last calls are counted a little later.
for wait_s in 0 1 2 4 8; do
  sleep "$wait_s"
  ctl functions --pid "$pid" -o json >"$WORK_DIR/functions.json"
  compare_counts >"$WORK_DIR/compared.log" 2>&1 && break
done
cat "$WORK_DIR/compared.log"
compare_counts >/dev/null 2>&1 || fail "the table above is not what the program did"
printf '\nThe slowest call, with its stack:\n'
show_slow_call "$pid"
printf '\nWhere it launched from:\n'
show_capture "$capture" || fail "the capture could not be shown"
printf '\nMetrics, for Prometheus, while the daemon runs: '
show_metrics "$metrics_address" || fail "the metrics are not what they should be"

step "6/6 Done in $((SECONDS - begin)) s, $((SECONDS - built)) s of them after the build"
echo "Logs and results: $WORK_DIR"
if [[ $keep == yes ]]; then
  cat >"$WORK_DIR/env" <<TEXT
export PATH=$PWD/build/client:\$PATH GPUPERF_ADDRESS=unix:$runtime_dir/api.sock
export GPUPERF_METRICS=http://$metrics_address GPUPERF_RUNTIME_DIR=$runtime_dir GPUPERFD_PID=$daemon_pid
TEXT
  cat <<TEXT
gpuperfd goes on as process $daemon_pid. Look at it and stop it with:
  . .quickstart/env
  gpuperfctl functions --watch
  kill \$GPUPERFD_PID && rm -r \$GPUPERF_RUNTIME_DIR
docs/tour.md goes on from here.
TEXT
else
  stop_daemon
  echo "gpuperfd was stopped"
fi
