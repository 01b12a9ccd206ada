#!/usr/bin/env bash
# Builds minitorch with CUDA and checks it on this machine's GPU, in parts that can be run one by one.
#
#   tools/gpu_check.sh RESULTS [PART...]     parts: build smoke cpp sanitizer python alone conformance models bench demo
#
# Without parts all of them run. Every part has a time limit of its own and writes RESULTS/PART*.log as it goes; a line
# for each is added to RESULTS/summary.txt. What it needs: nvcc, CMake, Ninja, torch, pytest with xdist and timeout,
# hypothesis, expecttest. C++ tests need GoogleTest (GTEST_ROOT names a folder with include/ and lib/); without it they
# are reported as not run.
#
#   PYTHON                 interpreter (python3)
#   JOBS                   parallel jobs (number of cores)
#   MINITORCH_CUDA_ARCHS   architectures (that of the GPU present)
#   LIMIT_PART             seconds that a part may take, e.g. LIMIT_python=300
#   SAMPLES                sample inputs of a conformance row at most (2); all: every one
set -u
cd "$(dirname "$0")/.."
results=${1:?usage: tools/gpu_check.sh RESULTS [PART...]}
shift
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(build smoke cpp sanitizer python alone conformance models bench demo)
mkdir -p "$results" || exit
results=$(cd "$results" && pwd) || exit
python=${PYTHON:-python3}
jobs=${JOBS:-$(nproc)}
half=$((jobs / 2 > 0 ? jobs / 2 : 1))
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
export MINITORCH_CUDA=1 MINITORCH_ISAS=${MINITORCH_ISAS:-avx512} MINITORCH_BUILD_DIR=${MINITORCH_BUILD_DIR:-build/gpu}
if [ -z "${MINITORCH_CUDA_ARCHS:-}" ]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
  case "$capability" in
    90) MINITORCH_CUDA_ARCHS=90a-real ;;
    "") MINITORCH_CUDA_ARCHS=80-real ;;
    *) MINITORCH_CUDA_ARCHS=$capability-real ;;
  esac
fi
export MINITORCH_CUDA_ARCHS MINITORCH_JOBS=$jobs
tests=$MINITORCH_BUILD_DIR/minitorch_tests

# run PART LIMIT LOG COMMAND...: one line in the summary: part, exit code (124: out of time), seconds, last line.
run() {
  local name=$1 limit=$2 log=$results/$3 start=$SECONDS code
  shift 3
  timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1
  code=$?
  printf '%-28s rc=%-4s %5ss  %s\n' "$name" "$code" $((SECONDS - start)) "$(tail -1 "$log" | cut -c1-160)" |
    tee -a "$results/summary.txt"
  return $code
}
limit() {
  local variable=LIMIT_$1
  echo "${!variable:-$2}"
}

part_build() {
  run build "$(limit build 900)" build.log "$python" setup.py -q build_ext --inplace || return
  # The metadata beside the package tell `import torch` about the device, as an installation would.
  run build-metadata 60 build_metadata.log "$python" setup.py -q egg_info
  if [ -n "${GTEST_ROOT:-}" ] || [ -e /usr/include/gtest/gtest.h ]; then
    run build-tests "$(limit build 900)" build_tests.log bash -c \
      "cmake -S . -B '$MINITORCH_BUILD_DIR' -DMINITORCH_TESTS=ON ${GTEST_ROOT:+-DGTest_ROOT='$GTEST_ROOT'} &&
       cmake --build '$MINITORCH_BUILD_DIR' --target minitorch_tests --parallel $jobs"
  fi
}

part_smoke() {
  MINITORCH_BACKEND=cuda MINITORCH_LAUNCH_BLOCKING=1 run smoke "$(limit smoke 120)" smoke.log \
    "$python" tools/gpu_smoke.py
}

part_cpp() {
  [ -x "$tests" ] || { echo "cpp: not run, GoogleTest is missing" | tee -a "$results/summary.txt"; return; }
  MINITORCH_BACKEND=cuda MINITORCH_LAUNCH_BLOCKING=1 run cpp "$(limit cpp 180)" cpp.log "$tests" --gtest_output="xml:$results/cpp.xml"
}

# One share of the C++ tests under a tool. initcheck does not see what Hopper's copy engine writes (a kernel that reads a
# box that another has just stored is reported, with the right values): what reads the parts of a product or an image
# from it is left out there. What such a kernel writes is not seen either, so it must be none that others read from:
# stage_kernel only outwards.
one_share() {
  local tool=$1 share=$2 log=$results/sanitizer/$1.$2.log options=() code
  [ "$tool" = initcheck ] &&
    options=(--kernel-name-exclude 'regex=finish_rest|add_kernel|write_weight|stage_kernel(<.*0>|I.Lb0E)')
  GTEST_TOTAL_SHARDS=$shares GTEST_SHARD_INDEX=$share compute-sanitizer --tool "$tool" "${options[@]}" \
    --error-exitcode 9 "$tests" \
    --gtest_filter='-Environment*:CpuBackend*:FormatBytes*:BlockSize*:CachingAllocator*:Math*:Half*:*Large*:*Long*:*.Alone*' \
    >"$log" 2>&1
  code=$?
  printf '%-28s rc=%-4s %s\n' "$tool/$share" "$code" "$(grep SUMMARY "$log" | tail -1)" >>"$results/sanitizer/$tool.txt"
  return $code
}
shares=24
export -f one_share
export results tests shares

# racecheck takes by far the longest: a hundred times what the others take.
part_sanitizer() {
  [ -x "$tests" ] || { echo "sanitizer: not run, GoogleTest is missing" | tee -a "$results/summary.txt"; return; }
  local tool
  mkdir -p "$results/sanitizer"
  for tool in memcheck initcheck synccheck racecheck; do
    rm -f "$results/sanitizer/$tool".*
    # shellcheck disable=SC2016
    MINITORCH_BACKEND=cuda MINITORCH_LAUNCH_BLOCKING=1 MINITORCH_SHORT_TESTS=1 run "sanitizer-$tool" \
      "$(limit sanitizer 500)" "sanitizer/$tool.log" \
      bash -c 'seq 0 $((shares - 1)) | xargs -P "$2" -I{} bash -c "one_share $1 {}"; code=$?
               echo "$(grep -c "rc=0" "$results/sanitizer/$1.txt") of $shares shares clean"; exit $code' _ "$tool" "$half"
  done
}

# One file of Python tests in a process of its own: a fault that costs the context ends one file, not the suite. What
# is about streams is not tested with launches that wait.
one_file() {
  local name code options=()
  name=$(basename "$1" .py)
  case $name in
    test_gpu_faults | test_gpu_hazards | test_gpu_streams | test_gpu_waits | test_multi_gpu | test_streams)
      export MINITORCH_LAUNCH_BLOCKING=0
      ;;
  esac
  [ "$name" = test_hostile ] && options=(-n 4) # several minutes by itself
  timeout 400 "$python" -m pytest -q "${options[@]}" --timeout=90 -p no:cacheprovider --tb=short \
    --junitxml="$results/python/$name.xml" "$1" >"$results/python/$name.log" 2>&1
  code=$?
  printf '%-36s rc=%-4s %s\n' "python/$name" "$code" "$(tail -1 "$results/python/$name.log" | cut -c1-120)"
}
export -f one_file
export python results

# Files that take most of the GPU's memory, and would take it from tests beside them: part alone runs them.
hungry='/test_(gpu_hazards|large)\.py$'

# files NAME LIMIT PROCESSES FILE...: these test files, so many at once; those that did not end in time are named.
files() {
  local name=$1 limit start=$SECONDS processes=$3 file
  limit=$(limit "$1" "$2")
  shift 3
  mkdir -p "$results/python"
  for file in "$@"; do rm -f "$results/python/$(basename "$file" .py)".{log,xml}; done
  # shellcheck disable=SC2016
  printf '%s\n' "$@" | MINITORCH_BACKEND=cuda MINITORCH_FALLBACK=error OMP_NUM_THREADS=2 \
    MINITORCH_LAUNCH_BLOCKING=${MINITORCH_LAUNCH_BLOCKING:-1} timeout --kill-after=10 "$limit" \
    xargs -P "$processes" -I{} bash -c 'one_file {}' 2>&1 | tee -a "$results/summary.txt"
  for file in "$@"; do
    file=python/$(basename "$file" .py)
    [ -e "$results/$file.xml" ] || echo "$file has no result: out of time or ended badly"
  done | tee -a "$results/summary.txt"
  echo "$name: $((SECONDS - start)) s" | tee -a "$results/summary.txt"
}

part_python() {
  # The longest first, so that nothing is left to wait for at the end.
  mapfile -t these < <(ls -S tests/python/test_*.py | grep -Ev "$hungry")
  files python 560 "$half" "${these[@]}"
}

part_alone() {
  mapfile -t these < <(ls tests/python/test_*.py | grep -E "$hungry")
  files alone 240 1 "${these[@]}"
}

# Every claimed row, in as many calls as it takes: each goes on where the last one stopped. The one that ends it writes the
# results that docs/coverage.md shows beside the CPU's (`make coverage` makes the page).
part_conformance() {
  local most
  most=$(limit conformance 560)
  MINITORCH_BACKEND=cuda run conformance "$most" conformance.log \
    "$python" -m tests.conformance.run --whole --samples "${SAMPLES:-2}" --jobs "$half" \
    --json "$results/conformance.json" --resume --seconds $((most > 120 ? most - 60 : most / 2)) --results
  [ tests/conformance/results-cuda.json -nt "$results/machine.txt" ] && cp tests/conformance/results-cuda.json "$results/"
}

part_models() {
  MINITORCH_BACKEND=cuda run models "$(limit models 400)" models.log \
    "$python" -m pytest -q --timeout=300 -p no:cacheprovider tests/models
}

part_bench() {
  MINITORCH_BACKEND=cuda run bench "$(limit bench 300)" bench.log \
    "$python" -m minitorch_backend bench --floors --quick --check --json "$results/bench.jsonl"
}

part_demo() {
  MINITORCH_BACKEND=cuda run demo "$(limit demo 300)" demo.log "$python" examples/side_by_side.py
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$results/machine.txt" 2>&1
for part in "${parts[@]}"; do "part_$part"; done
