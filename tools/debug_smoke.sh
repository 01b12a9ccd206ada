#!/usr/bin/env bash
# Runs the Python smoke test and a sample of conformance rows on the sanitized build in BUILD_DIR, without touching the build that is installed.
# Usage: debug_smoke.sh BUILD_DIR PYTHON
set -eu
build=$1
python=$(command -v "$2")
[[ $python = /* ]] || python=$PWD/$python  # it is called from another folder
asan=$("${CXX:-c++}" -print-file-name=libasan.so)
if [ ! -e "$asan" ]; then
  echo "Python smoke test under AddressSanitizer skipped: the compiler has no libasan.so."
  exit 0
fi
stdcpp=$("${CXX:-c++}" -print-file-name=libstdc++.so)
site=$PWD/$build/site
MINITORCH_SANITIZE=1 MINITORCH_BUILD_DIR=$build "$python" setup.py -q build --build-lib "$site"
root=$PWD
cd "$build" # so that the source tree's package is not found first
export ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$asan $stdcpp" TORCH_DEVICE_BACKEND_AUTOLOAD=0 MINITORCH_FALLBACK=error
PYTHONPATH=$site "$python" -m pytest -q -p no:cacheprovider --import-mode=importlib --rootdir "$root" -c "$root/pyproject.toml" "$root/tests/python/test_smoke.py"
# The tests' package lies beside the source tree's, which comes after the sanitized one.
PYTHONPATH=$site:$root "$python" -m tests.conformance.run --claimed --dtype all --spread 200 --samples 3,2 --jobs 2 --memory 0 --timeout 240
