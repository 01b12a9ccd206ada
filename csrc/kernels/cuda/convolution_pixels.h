// Convolutions on tensor cores, of 16-bit floats and, where the arguments allow tf32, of floats; false where the shape
// is not for it.
#pragma once
#include "kernels/convolution.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

bool conv_pixels(ConvPass pass, const ConvArgs& a);
bool conv_planes(ConvPass pass, const ConvArgs& a);  // of single pixels, over planes

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
