// Kernels finish before their call returns, on every backend.
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/backend.h"

int main(int argc, char** argv) {
  setenv("MINITORCH_LAUNCH_BLOCKING", "1", 1);
  testing::InitGoogleTest(&argc, argv);
  minitorch::backend();  // chooses the kernels
  return RUN_ALL_TESTS();
}
