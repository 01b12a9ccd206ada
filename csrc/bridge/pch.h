// Precompiled by CMake for every source on PyTorch's side. Sources still include what they use.
#pragma once
#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/DispatchStub.h>
#include <torch/library.h>
