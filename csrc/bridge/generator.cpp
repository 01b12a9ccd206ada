// See generator.h.
#include "bridge/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <deque>

#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {
DeviceGenerator::DeviceGenerator(c10::DeviceIndex device, uint64_t seed)
    : c10::GeneratorImpl(c10::Device(kDevice, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {
  DeviceGenerator::set_current_seed(seed);
}

c10::DeviceType DeviceGenerator::device_type() { return kDevice; }

void DeviceGenerator::set_current_seed(uint64_t seed) {
  state.seed = seed;
  seed_engine(state.engine, seed);
  state.next_float_normal.reset();
  state.next_double_normal.reset();
  state.philox_offset = 0;
}

uint64_t DeviceGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

namespace {
// On a GPU the state is Philox's: seed and offset, sixteen bytes, as native's CUDA generator has it.
bool uses_philox() { return !backend().host_accessible(); }
constexpr int64_t kPhiloxBytes = 16;
}  // namespace

// torch.Generator's pickling asks every device but the CPU for an offset, and gives it back.
void DeviceGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(uses_philox() || offset == 0, "CPU Generator does not use offset");
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  state.philox_offset = offset;
}
uint64_t DeviceGenerator::get_offset() const { return uses_philox() ? state.philox_offset : 0; }

void DeviceGenerator::set_state(const c10::TensorImpl& bytes) {
  if (uses_philox()) {
    at::detail::check_rng_state(bytes);
    TORCH_CHECK(bytes.numel() == kPhiloxBytes || bytes.numel() == kPhiloxBytes / 2, "RNG state is wrong size");
    const auto* words = static_cast<const uint64_t*>(bytes.data());
    set_current_seed(words[0]);
    set_offset(bytes.numel() == kPhiloxBytes ? words[1] : 0);
    return;
  }
  at::CPUGeneratorImpl native;
  native.set_state(bytes);
  const at::mt19937_data_pod data = native.engine().data();
  state.seed = data.seed_;
  std::copy(data.state_.begin(), data.state_.end(), state.engine.state);
  state.engine.left = data.left_;
  state.engine.next = data.next_;
  state.next_float_normal = native.next_float_normal_sample();
  state.next_double_normal = native.next_double_normal_sample();
}

c10::intrusive_ptr<c10::TensorImpl> DeviceGenerator::get_state() const {
  if (uses_philox()) {
    const at::Tensor bytes = at::empty({kPhiloxBytes}, at::kByte);
    auto* words = static_cast<uint64_t*>(bytes.mutable_data_ptr());
    words[0] = state.seed;
    words[1] = state.philox_offset;
    return bytes.getIntrusivePtr();
  }
  // Native's generator knows how to turn the state into bytes.
  at::mt19937_data_pod data{};
  data.seed_ = state.seed;
  data.left_ = state.engine.left;
  data.seeded_ = true;
  data.next_ = state.engine.next;
  std::copy(std::begin(state.engine.state), std::end(state.engine.state), data.state_.begin());
  at::mt19937 engine;
  engine.set_data(data);
  at::CPUGeneratorImpl native;
  native.set_engine(engine);
  native.set_next_float_normal_sample(state.next_float_normal);
  native.set_next_double_normal_sample(state.next_double_normal);
  return native.get_state();
}

DeviceGenerator* DeviceGenerator::clone_impl() const {
  auto* copy = new DeviceGenerator(device().index());
  copy->state = state;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const std::deque<at::Generator> generators = [] {
    std::deque<at::Generator> all;
    for (int d = 0; d < backend().device_count(); d++)
      all.push_back(at::make_generator<DeviceGenerator>(static_cast<c10::DeviceIndex>(d)));
    return all;
  }();
  const int index = device < 0 ? backend().current_device() : device;
  TORCH_CHECK(index < static_cast<int>(generators.size()), "minitorch has ", generators.size(),
              " device(s); there is no generator for device ", index);
  return generators[index];
}

at::Generator new_generator(c10::DeviceIndex device) {
  if (device >= 0) check_device(device);
  return at::make_generator<DeviceGenerator>(device < 0 ? static_cast<c10::DeviceIndex>(backend().current_device())
                                                        : device);
}

DeviceGenerator* generator_or_default(const std::optional<at::Generator>& generator) {
  return at::get_generator_or_default<DeviceGenerator>(generator, default_generator(-1));
}

}  // namespace minitorch
