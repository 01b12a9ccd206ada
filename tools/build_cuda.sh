#!/usr/bin/env bash
# Compiles the CUDA library into an existing build folder, so that every CUDA source is compiled wherever there is a
# compiler for it, with or without a GPU. Usage: build_cuda.sh BUILD_DIR [JOBS]
#
# A folder that was configured for CUDA keeps its architectures; any other gets one (sm_90a), which takes half the time
# of all. setup.py configures anew and knows nothing of this choice.
set -eu
build=$1
jobs=${2:-2}
if ! command -v nvcc >/dev/null; then
  echo "The CUDA library is not compiled: no nvcc on the PATH."
  exit 0
fi
options=(-DMINITORCH_CUDA=ON)
grep -q '^MINITORCH_CUDA:BOOL=ON' "$build/CMakeCache.txt" || options+=(-DMINITORCH_CUDA_ARCHS="${MINITORCH_CUDA_ARCHS:-90a-real}")
echo "Compiling the CUDA library (the first time takes some minutes)"
start=$SECONDS
cmake -S . -B "$build" -G Ninja "${options[@]}" >/dev/null
cmake --build "$build" --target minitorch_cuda --parallel "$jobs" | tail -1
echo "The CUDA library: $((SECONDS - start)) s"
