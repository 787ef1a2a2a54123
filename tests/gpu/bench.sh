#!/usr/bin/env bash
# What gpuperf as shipped costs real work, beside full captures, torch.profiler, Nsight Systems and GPM polling: makes the
# tables of docs/overhead.md. On a GPU host, as root; see bench.py.
#
# usage: bench.sh [WORKLOAD...]      (default: every workload that this host can run)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
(($#)) || set -- eager graph train compiled launches processes ddp
exec bash "$here/run.sh" "${@/#/bench_}"
