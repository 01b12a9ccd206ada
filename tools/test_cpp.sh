#!/usr/bin/env bash
# Builds and runs the GoogleTest binary in an existing or new build folder. Usage: test_cpp.sh BUILD_DIR [cmake -D…]
set -eu
build=$1
shift
if ! echo '#include <gtest/gtest.h>' | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1; then
  echo "C++ tests skipped: GoogleTest is not installed (on Debian and Ubuntu: apt-get install libgtest-dev)."
  exit 0
fi
cmake -S . -B "$build" -G Ninja -DMINITORCH_TESTS=ON "$@" >/dev/null
cmake --build "$build" --target minitorch_tests
"$build/minitorch_tests" --gtest_brief=1
