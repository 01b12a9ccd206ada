// Snapshots of the caching allocators and their recorded history, in the form that PyTorch's memory visualiser reads
// (torch.cuda.memory._snapshot describes it).
#include <torch/csrc/profiler/combined_traceback.h>

#include "python/bindings.h"
#include "runtime/backend.h"
#include "runtime/device_memory.h"

namespace minitorch {
namespace {

using torch::CapturedTraceback;

std::shared_ptr<void> gather_python() {
  return CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
}
std::shared_ptr<void> gather_python_and_native() {
  return CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/true);
}

// Collects tracebacks and, when all are known, puts their frames where they belong: symbols are looked up in one go.
class Frames {
 public:
  void into(const py::dict& target, const std::shared_ptr<void>& caller) {
    if (caller == nullptr) {
      target["frames"] = py::list();
      return;
    }
    kept_.push_back(caller);
    tracebacks_.push_back(static_cast<CapturedTraceback*>(caller.get()));
    targets_.push_back(target);
  }
  void finish() {
    const torch::SymbolizedTracebacks found = torch::symbolize(tracebacks_);
    std::vector<py::dict> frames;
    for (const torch::unwind::Frame& frame : found.all_frames) {
      py::dict& d = frames.emplace_back();
      d["filename"] = frame.filename;
      d["line"] = frame.lineno;
      d["name"] = frame.funcname;
    }
    for (size_t i = 0; i < targets_.size(); i++) {
      py::list own;
      for (const uint64_t k : found.tracebacks[i]) own.append(frames[k]);
      targets_[i]["frames"] = own;
    }
  }

 private:
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<CapturedTraceback*> tracebacks_;
  std::vector<py::dict> targets_;
};

const char* name_of(BlockInfo::State state) {
  switch (state) {
    case BlockInfo::State::held: return "active_allocated";
    case BlockInfo::State::pending: return "active_pending_free";
    default: return "inactive";
  }
}
const char* name_of(MemoryEvent::Action action) {
  static constexpr const char* kNames[] = {"alloc",         "free_requested", "free_completed",
                                           "segment_alloc", "segment_free",   "oom"};
  return kNames[static_cast<int>(action)];
}

py::dict describe(const SegmentInfo& segment, Frames& frames) {
  py::dict d;
  py::list blocks;
  size_t held = 0, active = 0, requested = 0;
  for (const BlockInfo& block : segment.blocks) {
    py::dict b;
    b["address"] = block.address;
    b["size"] = block.size;
    b["requested_size"] = block.requested;
    b["state"] = name_of(block.state);
    frames.into(b, block.caller);
    blocks.append(b);
    held += block.state == BlockInfo::State::held ? block.size : 0;
    active += block.state != BlockInfo::State::inactive ? block.size : 0;
    requested += block.requested;
  }
  d["device"] = segment.stream.device;
  d["address"] = segment.address;
  d["total_size"] = segment.size;
  d["allocated_size"] = held;
  d["active_size"] = active;
  d["requested_size"] = requested;
  d["stream"] = segment.stream.id;
  d["segment_type"] = segment.large ? "large" : "small";
  d["segment_pool_id"] = py::make_tuple(0, 0);
  d["is_expandable"] = segment.expandable;
  d["frames"] = py::list();
  d["blocks"] = blocks;
  return d;
}

py::dict describe(const MemoryEvent& event, Frames& frames) {
  py::dict d;
  d["action"] = name_of(event.action);
  if (event.action == MemoryEvent::Action::oom) {
    d["device_free"] = event.device_free;
  } else {
    d["addr"] = event.address;
  }
  d["size"] = event.size;
  d["stream"] = event.stream;
  d["time_us"] = event.time_us;
  d["pool_id"] = py::make_tuple(0, 0);
  frames.into(d, event.caller);
  return d;
}

py::dict snapshot(bool traces) {
  Frames frames;
  py::list segments, histories;
  for (int device = 0; device < backend().device_count(); device++) {
    for (const SegmentInfo& segment : caching_allocator(device).snapshot()) segments.append(describe(segment, frames));
    py::list history;
    if (traces)
      for (const MemoryEvent& event : MemoryTrace::instance().events(device)) history.append(describe(event, frames));
    histories.append(history);
  }
  frames.finish();
  py::dict result;
  result["segments"] = segments;
  result["device_traces"] = histories;
  result["allocator_settings"] = py::dict();
  return result;
}

void record_history(bool history, int callers, bool native_frames, size_t most_events, bool clear) {
  MemoryTrace::Options options;
  options.history = history;
  options.callers = static_cast<MemoryTrace::Callers>(callers);
  options.gather = native_frames ? &gather_python_and_native : &gather_python;
  options.most_events = most_events;
  options.clear = clear;
  MemoryTrace::instance().start(options);
}

}  // namespace

void bind_memory_trace(py::module& m) {
  m.def("memory_snapshot", &snapshot, py::arg("traces"));
  m.def("record_memory_history", &record_history, py::arg("history"), py::arg("callers"), py::arg("native_frames"),
        py::arg("most_events"), py::arg("clear"));
  m.def("stop_memory_history", [] { MemoryTrace::instance().stop(); });
}

}  // namespace minitorch
