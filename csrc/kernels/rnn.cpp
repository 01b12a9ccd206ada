// The recurrent kernel objects.
#include "kernels/rnn.h"

namespace minitorch {
constinit Kernel<void(const CellArgs&, char*, char*, char*)> lstm_cell_kernel{"lstm_cell"};
constinit Kernel<void(const CellArgs&, char*, char*)> gru_cell_kernel{"gru_cell"};
constinit Kernel<void(const CellBackwardArgs&, char*, char*)> lstm_cell_backward_kernel{"lstm_cell_backward"};
constinit Kernel<void(const CellBackwardArgs&, char*, char*, char*)> gru_cell_backward_kernel{"gru_cell_backward"};
constinit Kernel<void(const RnnLayerArgs&)> rnn_layer_kernel{"rnn_layer"};
constinit Kernel<void(const RnnLayerBackwardArgs&)> rnn_layer_backward_kernel{"rnn_layer_backward"};
}  // namespace minitorch
