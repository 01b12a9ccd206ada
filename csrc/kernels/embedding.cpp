// The kernel objects of embedding.h.
#include "kernels/embedding.h"

namespace minitorch {
constinit Kernel<void(const EmbeddingBackwardArgs&)> embedding_backward_kernel{"embedding_backward"};
constinit Kernel<void(const EmbeddingBagArgs&)> embedding_bag_kernel{"embedding_bag"};
constinit Kernel<void(const EmbeddingBagMaxBackwardArgs&)> embedding_bag_max_backward_kernel{
    "embedding_bag_max_backward"};
constinit Kernel<void(const SampleWeightsBackwardArgs&)> sample_weights_backward_kernel{"sample_weights_backward"};
constinit Kernel<void(const EmbeddingRenormArgs&)> embedding_renorm_kernel{"embedding_renorm"};
}  // namespace minitorch
