#!/usr/bin/env bash
# Builds gpuperf and packs it, with the shared libraries it needs and the GPU tests, into
# .gpu-bundle/, and that into .gpu-bundle.tar.xz: to carry to a GPU host where nothing can be installed,
# to unpack and to run there with
#   bash .gpu-bundle/run.sh
# CUDA libraries are not packed: the tests use those of the host's PyTorch.
#
# usage: tests/gpu/pack.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly BUNDLE=.gpu-bundle
readonly LIMIT_MIB=32  # of the archive
readonly CUDA=${CUDA_HOME:-/usr/local/cuda}

deploy/install_packages.sh build release
cmake --preset release >/dev/null
cmake --build build --target gpuperfd gpuperfctl cuda_calls cuda_calls_standin count_calls \
  slow_calls otlp_receiver stack_cost gpuperf_injector

rm -rf "$BUNDLE"
mkdir -p "$BUNDLE"/{bin,lib,workloads,injector,traces}

for program in build/daemon/gpuperfd build/client/gpuperfctl build/tests/bench/stack_cost \
  build/tests/workloads/otlp_receiver; do
  strip -o "$BUNDLE/bin/$(basename "$program")" "$program"
done
deploy/bundle_libraries.sh "$BUNDLE/lib" "$BUNDLE"/bin/* >/dev/null
cp build/tests/bench/libstack_targets*.so "$BUNDLE/bin/"  # the benchmark's own, found beside it

# Workloads keep their symbols: stacks are named by them. Their own libraries lie beside them.
cp build/tests/workloads/{cuda_calls,cuda_calls_standin,count_calls,slow_calls} "$BUNDLE/workloads/"
cp build/tests/workloads/libcount_target.so "$BUNDLE/workloads/"
mkdir "$BUNDLE/workloads/standin"
cp -L build/tests/workloads/standin/lib{cudart,cublas}.so.13 "$BUNDLE/workloads/standin/"

strip --strip-unneeded -o "$BUNDLE/injector/libgpuperf_injector.so" \
  build/injector/libgpuperf_injector.so

# Programs with planted paths, for Hopper as it is and for later GPUs by its PTX; they carry the CUDA
# runtime within them. They keep their symbols, as workloads do.
if [[ ! -x $CUDA/bin/nvcc ]]; then
  echo "pack.sh: $CUDA/bin/nvcc is missing: set CUDA_HOME to a CUDA toolkit" >&2
  exit 1
fi
for program in trace_threads trace_paths trace_graphs gpm_load stall_kernels; do
  "$CUDA/bin/nvcc" -std=c++20 -O2 -lineinfo -gencode 'arch=compute_90,code=[sm_90,compute_90]' --cudart static \
    -I. -Xcompiler -pthread,-rdynamic -o "$BUNDLE/traces/$program" "tests/gpu/$program.cu" -ldl
done
g++ -std=c++20 -O2 -shared -fPIC -I. -isystem "$CUDA/include" -o "$BUNDLE/traces/liblaunch_truth.so" \
  tests/gpu/launch_truth.cpp -ldl

cp deploy/config.json tests/gpu/{run,bench}.sh tests/gpu/*.py tests/gpu/session_{launch.cu,client.cpp} tests/gpu/stall_kernels.cu "$BUNDLE/"
(git describe --always --dirty 2>/dev/null || echo unknown) >"$BUNDLE/VERSION"

tar -c "$BUNDLE" | xz -T2 -3 >"$BUNDLE.tar.xz"
size_mib=$(du -m "$BUNDLE.tar.xz" | cut -f1)
if ((size_mib >= LIMIT_MIB)); then
  echo "pack.sh: $BUNDLE.tar.xz has $size_mib MiB; the limit is $LIMIT_MIB MiB" >&2
  exit 1
fi
echo "$BUNDLE.tar.xz: $size_mib MiB. On the GPU host, as root: tar -xf $BUNDLE.tar.xz && bash $BUNDLE/run.sh"
