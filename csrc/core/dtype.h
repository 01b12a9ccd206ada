// Element types. The numeric values are those of c10::ScalarType (checked in bridge/convert.h), so that crossing the
// bridge is a cast, but nothing here depends on PyTorch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/complex.h"
#include "core/half.h"
#include "core/macros.h"

namespace minitorch {

enum class DType : int8_t {
  U8 = 0,
  I8 = 1,
  I16 = 2,
  I32 = 3,
  I64 = 4,
  F16 = 5,
  F32 = 6,
  F64 = 7,
  C32 = 8,
  C64 = 9,
  C128 = 10,
  Bool = 11,
  BF16 = 15,
  U16 = 27,
  U32 = 28,
  U64 = 29,
};
inline constexpr int kDTypeSlots = 32;  // one past the largest value: the length of tables indexed by DType

// MT_FOR_ALL_DTYPES(X) calls X(DType enumerator, C++ type) for every element type.
#define MT_FOR_FLOAT_DTYPES(X) X(F32, float) X(F64, double)
#define MT_FOR_HALF_DTYPES(X) X(F16, ::minitorch::Half) X(BF16, ::minitorch::BFloat16)
#define MT_FOR_COMPLEX_DTYPES(X) X(C64, ::minitorch::Complex<float>) X(C128, ::minitorch::Complex<double>)
#define MT_FOR_INT_DTYPES(X) X(U8, uint8_t) X(I8, int8_t) X(I16, int16_t) X(I32, int32_t) X(I64, int64_t)
#define MT_FOR_UINT_DTYPES(X) X(U16, uint16_t) X(U32, uint32_t) X(U64, uint64_t)
#define MT_FOR_ALL_DTYPES(X) \
  MT_FOR_INT_DTYPES(X)       \
  MT_FOR_UINT_DTYPES(X)      \
  MT_FOR_FLOAT_DTYPES(X)     \
  MT_FOR_HALF_DTYPES(X) MT_FOR_COMPLEX_DTYPES(X) X(C32, ::minitorch::Complex<::minitorch::Half>) X(Bool, bool)

template <class T>
struct DTypeOf;
template <DType D>
struct TypeOf;
#define MT_DTYPE_MAP(D, T)                   \
  template <>                                \
  struct DTypeOf<T> {                        \
    static constexpr DType value = DType::D; \
  };                                         \
  template <>                                \
  struct TypeOf<DType::D> {                  \
    using type = T;                          \
  };
MT_FOR_ALL_DTYPES(MT_DTYPE_MAP)
#undef MT_DTYPE_MAP
template <class T>
inline constexpr DType dtype_of = DTypeOf<std::remove_cv_t<T>>::value;
template <DType D>
using type_of = typename TypeOf<D>::type;

MT_HD constexpr size_t size_of(DType d) {
  switch (d) {
#define MT_SIZE(D, T) \
  case DType::D: return sizeof(T);
    MT_FOR_ALL_DTYPES(MT_SIZE)
#undef MT_SIZE
  }
  return 0;
}

MT_HD constexpr const char* name_of(DType d) {
  switch (d) {
    case DType::U8: return "uint8";
    case DType::I8: return "int8";
    case DType::I16: return "int16";
    case DType::I32: return "int32";
    case DType::I64: return "int64";
    case DType::F16: return "float16";
    case DType::F32: return "float32";
    case DType::F64: return "float64";
    case DType::C32: return "complex32";
    case DType::C64: return "complex64";
    case DType::C128: return "complex128";
    case DType::Bool: return "bool";
    case DType::BF16: return "bfloat16";
    case DType::U16: return "uint16";
    case DType::U32: return "uint32";
    case DType::U64: return "uint64";
  }
  return "unknown";
}

MT_HD constexpr bool is_complex(DType d) { return d == DType::C32 || d == DType::C64 || d == DType::C128; }
MT_HD constexpr bool is_half(DType d) { return d == DType::F16 || d == DType::BF16; }
MT_HD constexpr bool is_floating(DType d) { return d == DType::F32 || d == DType::F64 || is_half(d); }
MT_HD constexpr bool is_integral(DType d) { return !is_complex(d) && !is_floating(d) && d != DType::Bool; }

template <class T>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<Complex<T>> : std::true_type {};
template <class T>
inline constexpr bool is_complex_v = IsComplex<T>::value;
template <class T>
inline constexpr bool is_half_v = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
inline constexpr bool is_floating_v = std::is_floating_point_v<T> || is_half_v<T>;

// The type that arithmetic on T runs in: 16-bit floats compute in float, everything else in itself.
template <class T>
struct ComputeType {
  using type = std::conditional_t<is_half_v<T>, float, T>;
};
template <>
struct ComputeType<Complex<Half>> {
  using type = Complex<float>;
};
template <class T>
using compute_t = typename ComputeType<T>::type;

constexpr DType compute_dtype(DType d) { return is_half(d) ? DType::F32 : d == DType::C32 ? DType::C64 : d; }

// T for real types, the component type for complex ones.
template <class T>
struct RealType {
  using type = T;
};
template <class T>
struct RealType<Complex<T>> {
  using type = T;
};
template <class T>
using real_t = typename RealType<T>::type;

// The C++ type of an element, passed by value to generic lambdas: `[](auto tag) { using T = typename
// decltype(tag)::type; }`.
template <class T>
struct Tag {
  using type = T;
};
template <class... T>
struct Types {};

using FloatTypes = Types<float, double>;
using FloatingTypes = Types<float, double, Half, BFloat16>;
using ComplexTypes = Types<Complex<float>, Complex<double>>;
using IntTypes = Types<uint8_t, int8_t, int16_t, int32_t, int64_t>;

// Calls f(Tag<T>) for the T of the list whose DType is d. False if the list has no such type.
template <class F, class... T>
MT_INLINE bool dispatch(DType d, Types<T...>, F&& f) {
  return ((d == dtype_of<T> ? (f(Tag<T>{}), true) : false) || ...);
}

}  // namespace minitorch
