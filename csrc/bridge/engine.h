// PyTorch's autograd engine and its threads.
#pragma once

namespace minitorch {

// Makes the engine, if it has not started, start without threads for our devices. It begins one for each device that it
// sees, and from then on refuses to run in a forked child. Where backward passes run in the thread that asks for them
// (minitorch_backend/_engine.py) it needs none.
void start_engine_without_threads();

// True in a thread that is starting the engine so.
bool devices_are_hidden();

}  // namespace minitorch
