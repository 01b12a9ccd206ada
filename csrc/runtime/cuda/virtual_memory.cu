// See virtual_memory.h.
#include "runtime/cuda/virtual_memory.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <vector>

#include "runtime/cuda/cuda.h"

namespace minitorch::cuda {
namespace {

constexpr size_t kChunk = size_t{2} << 20;  // a piece of memory; every GPU's granularity divides it

template <class F>
bool look_up(const char* name, F& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return false;
  }
  function = reinterpret_cast<F>(found);
  return true;
}

struct Driver {
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  bool usable;
  Driver()
      : usable(look_up("cuMemAddressReserve", reserve) && look_up("cuMemAddressFree", free) &&
               look_up("cuMemCreate", create) && look_up("cuMemRelease", release) && look_up("cuMemMap", map) &&
               look_up("cuMemUnmap", unmap) && look_up("cuMemSetAccess", set_access)) {}
};
const Driver& driver() {
  static const Driver found;
  return found;
}

CUdeviceptr address(const void* ptr) { return reinterpret_cast<CUdeviceptr>(ptr); }

// Who may use the memory of `device`.
std::vector<CUmemAccessDesc> users_of(int device) {
  std::vector<CUmemAccessDesc> users;
  int count = 0;
  cudaGetDeviceCount(&count);
  for (int other = 0; other < count; other++) {
    if (other != device && !reaches(other, device)) continue;
    CUmemAccessDesc& user = users.emplace_back();
    user.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    user.location.id = other;
    user.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return users;
}

}  // namespace

void* reserve_addresses(size_t bytes) noexcept {
  CUdeviceptr found = 0;
  if (!driver().usable || driver().reserve(&found, bytes, kChunk, 0, 0) != CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<void*>(found);
}

void release_addresses(void* ptr, size_t bytes) noexcept { driver().free(address(ptr), bytes); }

bool commit(int device, void* ptr, size_t bytes) noexcept {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  size_t done = 0;
  for (; done < bytes; done += kChunk) {
    CUmemGenericAllocationHandle handle;
    if (driver().create(&handle, kChunk, &properties, 0) != CUDA_SUCCESS) break;
    const bool mapped = driver().map(address(ptr) + done, kChunk, 0, handle, 0) == CUDA_SUCCESS;
    driver().release(handle);  // the mapping keeps the memory
    if (!mapped) break;
  }
  if (done == bytes) {
    try {
      const std::vector<CUmemAccessDesc> users = users_of(device);
      if (driver().set_access(address(ptr), bytes, users.data(), users.size()) == CUDA_SUCCESS) return true;
    } catch (const std::bad_alloc&) {
    }
  }
  if (done > 0) driver().unmap(address(ptr), done);
  return false;
}

bool decommit(int device, void* ptr, size_t bytes) noexcept {
  int previous = 0;
  cudaGetDevice(&previous);
  cudaSetDevice(device);
  const bool idle = cudaDeviceSynchronize() == cudaSuccess;
  cudaSetDevice(previous);
  return idle && driver().unmap(address(ptr), bytes) == CUDA_SUCCESS;
}

}  // namespace minitorch::cuda
