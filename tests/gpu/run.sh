#!/usr/bin/env bash
# Runs the GPU tests on a GPU host, from the folder that tests/gpu/pack.sh packed. Needs root, an
# NVIDIA driver and a python3 with PyTorch; installs nothing.
#
# usage: run.sh [CHECK...]     (default: every check; the names are in checks.py, those that begin with
#                              sessions_ in sessions.py, with trace_ or launch_ in traces.py, with bench_ in bench.py, which bench.sh runs)
#
# Results go to ${OUT:-./gpu-results}; each program's last line is "N passed, N failed".
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Or started from the repository.
if [[ ! -x $here/bin/gpuperfd ]]; then here=$here/../../.gpu-bundle; fi
if [[ ! -x $here/bin/gpuperfd ]]; then
  echo "run.sh: there is no $here/bin/gpuperfd: make the bundle with tests/gpu/pack.sh first" >&2
  exit 1
fi
[[ $EUID -eq 0 ]] || { echo "run.sh: run this as root: loading BPF programs needs it" >&2; exit 1; }
python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' || {
  echo "run.sh: python3 here has no PyTorch that sees a GPU" >&2
  exit 1
}

export OUT=${OUT:-$PWD/gpu-results}
mkdir -p "$OUT"
others=() sessions=() traces=() benches=()
for check in "$@"; do
  case $check in
    sessions_*) sessions+=("$check") ;;
    trace_* | launch_*) traces+=("$check") ;;
    bench_*) benches+=("$check") ;;
    *) others+=("$check") ;;
  esac
done
status=0
if (($# == 0 || ${#others[@]})); then
  python3 "$here/checks.py" "$here" "$OUT" "${others[@]}" || status=$?
fi
if (($# == 0 || ${#sessions[@]})); then
  python3 "$here/sessions.py" "$here" "$OUT" "${sessions[@]}" || status=$?
fi
if (($# == 0 || ${#traces[@]})); then
  python3 "$here/traces.py" "$here" "$OUT" "${traces[@]}" || status=$?
fi
if ((${#benches[@]})); then
  python3 "$here/bench.py" "$here" "$OUT" "${benches[@]}" || status=$?
fi
exit "$status"
