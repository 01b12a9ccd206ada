#!/usr/bin/env bash
# Runs the Python smoke test on the sanitized build in BUILD_DIR, without touching the build that is installed.
# Usage: debug_smoke.sh BUILD_DIR PYTHON
set -eu
build=$1 python=$2
asan=$("${CXX:-c++}" -print-file-name=libasan.so)
if [ ! -e "$asan" ]; then
  echo "Python smoke test under AddressSanitizer skipped: the compiler has no libasan.so."
  exit 0
fi
stdcpp=$("${CXX:-c++}" -print-file-name=libstdc++.so)
site=$PWD/$build/site
MINITORCH_SANITIZE=1 MINITORCH_BUILD_DIR=$build "$python" setup.py -q build --build-lib "$site"
cd "$build" # so that the source tree's package is not found first
ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$asan $stdcpp" PYTHONPATH=$site TORCH_DEVICE_BACKEND_AUTOLOAD=0 \
  "$python" -m pytest -q -p no:cacheprovider --import-mode=importlib --rootdir "$OLDPWD" -c "$OLDPWD/pyproject.toml" "$OLDPWD/tests/python/test_smoke.py"
