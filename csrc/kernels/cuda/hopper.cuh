// The instructions of Hopper's matrix units (sm_90a): tiles that the copy engine brings into shared memory, barriers
// that count the bytes, and products of a warpgroup whose operands stay in shared memory (PTX ISA, "wgmma", "mbarrier",
// "cp.async.bulk.tensor").
#pragma once
#include <cuda.h>

#include "kernels/cuda/mma.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace hopper {

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers known to the copy engine; a block barrier must follow.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// A warp is done with a stage that its lanes have read themselves. (Of a stage that only products read, one lane may
// say so once they are done.)
__device__ __forceinline__ void warp_leaves(uint32_t empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
  __syncwarp();
}
// Until the phase of this parity is over.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// As copy_box below, in four dimensions.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, int x, int y, int z, int w,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
      : "memory");
}

// A box of the tensor that the map describes, from element (x, y, z) on; outside of the tensor it is zeros.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, int x, int y, int z, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

// `bytes` from `from` on; both are multiples of 16.
__device__ __forceinline__ void copy_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// A box from shared memory to the tensor; what lies outside of it is not written. All threads that wrote the box call
// writes_done and meet before one of them stores it.
__device__ __forceinline__ void writes_done() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void store_box(const CUtensorMap& map, int x, int y, int z, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];\n\t"
      "cp.async.bulk.commit_group;" ::"l"(reinterpret_cast<uint64_t>(&map)),
      "r"(x), "r"(y), "r"(z), "r"(from)
      : "memory");
}
// The same in four dimensions.
__device__ __forceinline__ void store_box(const CUtensorMap& map, int x, int y, int z, int w, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n\t"
      "cp.async.bulk.commit_group;" ::"l"(reinterpret_cast<uint64_t>(&map)),
      "r"(x), "r"(y), "r"(z), "r"(w), "r"(from)
      : "memory");
}
// Until all but the last `Pending` boxes that this thread stored have been read from shared memory.
template <int Pending>
__device__ __forceinline__ void stores_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// The barrier of one warpgroup. 0 is __syncthreads.
__device__ __forceinline__ void group_barrier(int number) {
  asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory");
}
// Four 8 x 8 matrices of 16-bit elements; lanes as with mma::load_matrices.
__device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

// An operand in shared memory in lines of 128 bytes, chunks exchanged by the line's number in groups of eight lines.
// stride: bytes from one group to the next; leading: across lines, from one 128-byte column of them to the next.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// After the wait: keeps uses of a sum from moving in front of it.
__device__ __forceinline__ void settled(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

template <int Count>
__device__ __forceinline__ void registers_grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void registers_shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

// The instruction wants each of a lane's sums by name: lists of them in the text, and as operands.
#define MT_NAMES_32                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MT_NAMES_64                                                                  \
  MT_NAMES_32                                                                        \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MT_NAMES_128                                                                             \
  MT_NAMES_64                                                                                    \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define MT_SUMS_8(d, i)                                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define MT_SUMS_32(d, i) MT_SUMS_8(d, i), MT_SUMS_8(d, i + 8), MT_SUMS_8(d, i + 16), MT_SUMS_8(d, i + 24)
#define MT_SUMS_64(d, i) MT_SUMS_32(d, i), MT_SUMS_32(d, i + 32)
#define MT_SUMS_128(d, i) MT_SUMS_64(d, i), MT_SUMS_64(d, i + 64)

// Both operands in shared memory; P0 .. P4 are the numbers of the operands behind the sums.
#define MT_PRODUCT(R, COLUMNS, TYPE, P0, P1, P2, P3, P4)                                                      \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " P2 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" COLUMNS \
               "k16.f32." TYPE "." TYPE " {" MT_NAMES_##R "}, " P0 ", " P1 ", p, 1, 1, " P3 ", " P4 ";\n\t}"  \
               : MT_SUMS_##R(d, 0)                                                                            \
               : "l"(a), "l"(b), "r"(adds), "n"(AK ? 0 : 1), "n"(BK ? 0 : 1))
#define MT_PRODUCT_TF32(R, COLUMNS, P0, P1, P2)                                                               \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " P2 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" COLUMNS \
               "k8.f32.tf32.tf32 {" MT_NAMES_##R "}, " P0 ", " P1 ", p, 1, 1;\n\t}"                           \
               : MT_SUMS_##R(d, 0)                                                                            \
               : "l"(a), "l"(b), "r"(adds))
// The left one in registers.
#define MT_PRODUCT_LEFT(R, COLUMNS, TYPE, P0, P1, P2, P3, P4, P5)                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." TYPE "." TYPE " {" MT_NAMES_##R \
               "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", 1, 1, 1, " P5 ";"                        \
               : MT_SUMS_##R(d, 0)                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(BK ? 0 : 1))
#define MT_PRODUCT_LEFT_TF32(R, COLUMNS, P0, P1, P2, P3, P4)                                 \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" COLUMNS "k8.f32.tf32.tf32 {" MT_NAMES_##R \
               "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", 1, 1, 1;"                       \
               : MT_SUMS_##R(d, 0)                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// d (64 x 2 R over a warpgroup) = a (64 x 16) b (16 x 2 R) + d if `adds`. A lane of warp w holds rows 16 w + lane / 4
// and eight below it, as with mma.sync. AK, BK: the operand's memory runs along k. Floats, as tf32, have 8 of k, and
// must run along it.
template <class S, bool AK, bool BK, int R>
__device__ __forceinline__ void product(float (&d)[R], uint64_t a, uint64_t b, int adds) {
  static_assert(R == 32 || R == 64 || R == 128);
  if constexpr (std::is_same_v<S, float>) {
    static_assert(AK && BK);
    if constexpr (R == 32) MT_PRODUCT_TF32(32, "64", "%32", "%33", "%34");
    if constexpr (R == 64) MT_PRODUCT_TF32(64, "128", "%64", "%65", "%66");
    if constexpr (R == 128) MT_PRODUCT_TF32(128, "256", "%128", "%129", "%130");
    return;
  }
  constexpr bool bf16 = std::is_same_v<S, BFloat16>;
  if constexpr (R == 32 && bf16) MT_PRODUCT(32, "64", "bf16", "%32", "%33", "%34", "%35", "%36");
  if constexpr (R == 32 && !bf16) MT_PRODUCT(32, "64", "f16", "%32", "%33", "%34", "%35", "%36");
  if constexpr (R == 64 && bf16) MT_PRODUCT(64, "128", "bf16", "%64", "%65", "%66", "%67", "%68");
  if constexpr (R == 64 && !bf16) MT_PRODUCT(64, "128", "f16", "%64", "%65", "%66", "%67", "%68");
  if constexpr (R == 128 && bf16) MT_PRODUCT(128, "256", "bf16", "%128", "%129", "%130", "%131", "%132");
  if constexpr (R == 128 && !bf16) MT_PRODUCT(128, "256", "f16", "%128", "%129", "%130", "%131", "%132");
}
// d (64 x 2 R) += a (64 x 16, in registers as with mma.sync) b; floats as above.
template <class S, bool BK, int R>
__device__ __forceinline__ void product_left(float (&d)[R], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (std::is_same_v<S, float>) {
    static_assert(BK);
    if constexpr (R == 32) MT_PRODUCT_LEFT_TF32(32, "64", "%32", "%33", "%34", "%35", "%36");
    if constexpr (R == 64) MT_PRODUCT_LEFT_TF32(64, "128", "%64", "%65", "%66", "%67", "%68");
    if constexpr (R == 128) MT_PRODUCT_LEFT_TF32(128, "256", "%128", "%129", "%130", "%131", "%132");
    return;
  }
  static_assert(std::is_same_v<S, float> || R == 32 || R == 64);
  constexpr bool bf16 = std::is_same_v<S, BFloat16>;
  if constexpr (R == 32 && bf16) MT_PRODUCT_LEFT(32, "64", "bf16", "%32", "%33", "%34", "%35", "%36", "%37");
  if constexpr (R == 32 && !bf16) MT_PRODUCT_LEFT(32, "64", "f16", "%32", "%33", "%34", "%35", "%36", "%37");
  if constexpr (R == 64 && bf16) MT_PRODUCT_LEFT(64, "128", "bf16", "%64", "%65", "%66", "%67", "%68", "%69");
  if constexpr (R == 64 && !bf16) MT_PRODUCT_LEFT(64, "128", "f16", "%64", "%65", "%66", "%67", "%68", "%69");
}
#undef MT_PRODUCT
#undef MT_PRODUCT_LEFT
#undef MT_PRODUCT_LEFT_TF32
#undef MT_PRODUCT_TF32
#undef MT_NAMES_32
#undef MT_NAMES_64
#undef MT_NAMES_128
#undef MT_SUMS_8
#undef MT_SUMS_32
#undef MT_SUMS_64
#undef MT_SUMS_128

// ---- Host ----------------------------------------------------------------------------------------------------------

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function that makes tensor maps, or null.
inline Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
      cudaGetLastError();
      function = nullptr;
    }
    return reinterpret_cast<Encode>(function);
  }();
  return found;
}

// A map of a tensor that is read or written in boxes of lines of 128 bytes; `box`: of how many lines in the dimensions
// but the first. Strides in elements, likewise. Floats are rounded to tf32 as they are read, if `rounds`.
template <int Rank>
bool make_map(CUtensorMap* map, DType dtype, const void* data, const int64_t (&sizes)[Rank],
              const int64_t (&strides)[Rank - 1], const int (&box)[Rank - 1], bool rounds = false) {
  const int64_t element = dtype == DType::F32 ? 4 : 2;
  cuuint64_t extents[Rank], bytes[Rank - 1];
  cuuint32_t box_sizes[Rank], steps[Rank];
  for (int d = 0; d < Rank; d++) {
    extents[d] = static_cast<cuuint64_t>(sizes[d]);
    box_sizes[d] = static_cast<cuuint32_t>(d == 0 ? 128 / element : box[d - 1]);
    steps[d] = 1;
    if (d > 0) bytes[d - 1] = static_cast<cuuint64_t>(strides[d - 1] * element);
  }
  const CUtensorMapDataType type = dtype == DType::BF16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : dtype == DType::F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : rounds              ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return encoder()(map, type, Rank, const_cast<void*>(data), extents, bytes, box_sizes, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Boxes of `lines` lines along the second dimension.
template <int Rank>
bool make_map(CUtensorMap* map, DType dtype, const void* data, const int64_t (&sizes)[Rank],
              const int64_t (&strides)[Rank - 1], int lines, bool rounds = false) {
  int box[Rank - 1];
  for (int d = 0; d < Rank - 1; d++) box[d] = d == 0 ? lines : 1;
  return make_map<Rank>(map, dtype, data, sizes, strides, box, rounds);
}

// Whether the device has these instructions and the build this kernel for them: elsewhere than on sm_90a it is empty,
// which its registers show.
template <class Kernel>
bool usable(Kernel kernel) {
  cudaFuncAttributes attributes;
  const bool built = encoder() != nullptr && cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
                     attributes.binaryVersion == 90 && attributes.numRegs > 64;
  cudaGetLastError();
  return built;
}

}  // namespace hopper
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
