#!/usr/bin/env bash
# Checks for what pip cannot install: a C++20 compiler and Python's headers (required); ccache, GoogleTest and a browser
# that tests of HTML reports use (optional).
# Missing pieces are installed with apt-get where that is possible; otherwise a message says what is needed or skipped.
set -u
python=${1:-python3}

has_compiler() { echo 'int main(){}' | "${CXX:-c++}" -std=c++20 -fopenmp -x c++ - -o /dev/null 2>/dev/null; }
has_headers() { "$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))'; }
has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
has_ccache() { command -v ccache >/dev/null; }
has_gtest() { echo '#include <gtest/gtest.h>' | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1; }
has_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null

wanted=()
has_compiler || wanted+=(g++)
has_headers || wanted+=(python3-dev)
has_venv || wanted+=(python3-venv)
has_ccache || wanted+=(ccache)
has_gtest || wanted+=(libgtest-dev)
has_browser || wanted+=(chromium)
if [ ${#wanted[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing with apt-get: ${wanted[*]}"
  export DEBIAN_FRONTEND=noninteractive
  install() { apt-get install -qq -y --no-install-recommends "$@"; }
  { install "${wanted[@]}" || { apt-get update -qq && install "${wanted[@]}"; } ||
    for package in "${wanted[@]}"; do install "$package"; done; } >/dev/null 2>&1 ||
    echo "apt-get could not install all of them."
fi

status=0
need() { echo "Needed: $1"; status=1; }
has_compiler || need "a C++20 compiler with OpenMP (on Debian and Ubuntu: apt-get install g++)."
has_headers || need "the headers of $python (on Debian and Ubuntu: apt-get install python3-dev)."
has_venv || need "the venv module of $python (on Debian and Ubuntu: apt-get install python3-venv)."
has_ccache || echo "Skipped: ccache is not installed, so every clean build compiles everything (apt-get install ccache)."
has_gtest || echo "Skipped: GoogleTest is not installed, so 'make test' leaves out the C++ tests (apt-get install libgtest-dev)."
has_browser || echo "Skipped: Chromium is not installed, so the tests of HTML reports in a browser are left out (apt-get install chromium)."
exit $status
