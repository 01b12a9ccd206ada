// Lists of compute types that the tables of kernels/pointwise.h name.
#pragma once
#include "core/dtype.h"

namespace minitorch {

using RealTypes = Types<float, double, uint8_t, int8_t, int16_t, int32_t, int64_t>;
using RealBoolTypes = Types<float, double, uint8_t, int8_t, int16_t, int32_t, int64_t, bool>;
using FloatComplexTypes = Types<float, double, Complex<float>, Complex<double>>;
using NumericTypes = Types<float, double, uint8_t, int8_t, int16_t, int32_t, int64_t, Complex<float>, Complex<double>>;
using AllTypes =
    Types<float, double, uint8_t, int8_t, int16_t, int32_t, int64_t, Complex<float>, Complex<double>, bool>;
using AllUnsignedTypes = Types<float, double, uint8_t, int8_t, int16_t, int32_t, int64_t, Complex<float>,
                               Complex<double>, bool, uint16_t, uint32_t, uint64_t>;
using IntBoolTypes = Types<uint8_t, int8_t, int16_t, int32_t, int64_t, bool>;
using UnsignedBoolTypes = Types<uint8_t, int8_t, int16_t, int32_t, int64_t, bool, uint16_t, uint32_t, uint64_t>;

}  // namespace minitorch
