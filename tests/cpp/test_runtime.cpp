// Environment variables, streams, events and the clock of the CPU backend.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "memory.h"
#include "runtime/backend.h"
#include "runtime/cuda/architectures.h"
#include "runtime/environment.h"
#include "runtime/errors.h"

namespace minitorch {
namespace {

std::map<std::string, std::string> variables;
const char* get(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

TEST(Environment, ReadsWhatIsAllowed) {
  variables = {{"MINITORCH_BACKEND", "cpu"},       {"MINITORCH_ISA", "avx2"}, {"MINITORCH_FALLBACK", "error"},
               {"MINITORCH_MEMORY_LIMIT", "512M"}, {"MINITORCH_POISON", "1"}, {"MINITORCH_SOMETHING_ELSE", "x"},
               {"MINITORCH_PEER_ACCESS", "0"}};
  const Environment e = parse_environment(get);
  EXPECT_EQ(e.backend, BackendChoice::cpu);
  EXPECT_EQ(e.isa, "avx2");
  EXPECT_EQ(e.fallback, FallbackPolicy::error);
  EXPECT_EQ(e.memory_limit, size_t{512} << 20);
  EXPECT_TRUE(e.poison);
  EXPECT_FALSE(e.peer_access);
}

TEST(Environment, EmptyMeansNotSet) {
  variables = {{"MINITORCH_BACKEND", ""}, {"MINITORCH_MEMORY_LIMIT", ""}, {"MINITORCH_POISON", ""}};
  const Environment e = parse_environment(get);
  EXPECT_EQ(e.backend, BackendChoice::automatic);
  EXPECT_FALSE(e.memory_limit.has_value());
  EXPECT_FALSE(e.poison);
}

TEST(Environment, ReadsSizesWithUnits) {
  const std::map<std::string, size_t> cases = {{"1", 1},
                                               {"1000B", 1000},
                                               {"2K", 2048},
                                               {"1T", size_t{1} << 40},
                                               {"1.5GiB", size_t{3} << 29},
                                               {"3GB", size_t{3} << 30}};
  for (const auto& [text, bytes] : cases) {
    variables = {{"MINITORCH_MEMORY_LIMIT", text}};
    EXPECT_EQ(parse_environment(get).memory_limit, bytes) << text;
  }
}

TEST(Environment, NearMissesAreNamed) {
  const auto warning = [](std::vector<const char*> names) {
    names.push_back(nullptr);
    return misspelt_variable(names.data());
  };
  const std::pair<const char*, const char*> cases[] = {{"MINITORCH_FALBACK=error", "MINITORCH_FALLBACK"},
                                                       {"MINITORCH_FALLBACKS=", "MINITORCH_FALLBACK"},
                                                       {"MINITORCH_MEM_LIMIT=1G", "MINITORCH_MEMORY_LIMIT"},
                                                       {"MINITORCH_POSION=1", "MINITORCH_POISON"},
                                                       {"MINITORCH_ISE=avx2", "MINITORCH_ISA"}};
  for (const auto& [given, meant] : cases) {
    const std::string text = warning({"HOME=/", "MINITORCH_BACKEND=cpu", given});
    const std::string name(given, std::strchr(given, '='));
    EXPECT_NE(text.find(name + " is not known"), std::string::npos) << given << ": " << text;
    EXPECT_NE(text.find(std::string(meant) + " is."), std::string::npos) << given << ": " << text;
  }
  for (const char* name :
       {"MINITORCH_POISON=1", "MINITORCH_ISAS=avx512", "MINITORCH_KERNEL_CACHE=/", "MINITORCH_CUDA=1",
        "MINITORCH_TESTS=1", "MINITORCH_JOBS=2", "MINITORCH_WHATEVER=1", "TORCH_FALLBACK=1"})
    EXPECT_EQ(warning({name}), "") << name;
}

TEST(Environment, RefusesNonsenseAndSaysWhatIsAllowed) {
  struct Case {
    const char *name, *value, *allowed;
  };
  for (const Case& c :
       {Case{"MINITORCH_BACKEND", "tpu", "cpu, cuda"}, Case{"MINITORCH_ISA", "sse9", "baseline, avx2, avx512"},
        Case{"MINITORCH_FALLBACK", "maybe", "error, warn, allow"}, Case{"MINITORCH_PEER_ACCESS", "no", "0, 1"},
        Case{"MINITORCH_POISON", "yes", "0, 1"}, Case{"MINITORCH_MEMORY_LIMIT", "lots", "bytes"},
        Case{"MINITORCH_MEMORY_LIMIT", "-5M", "positive"}, Case{"MINITORCH_MEMORY_LIMIT", "0", "positive"},
        Case{"MINITORCH_MEMORY_LIMIT", "5 M", "512M"}, Case{"MINITORCH_MEMORY_LIMIT", "5Mx", "512M"},
        Case{"MINITORCH_MEMORY_LIMIT", "nan", "512M"}, Case{"MINITORCH_MEMORY_LIMIT", "1e300", "512M"}}) {
    variables = {{c.name, c.value}};
    try {
      parse_environment(get);
      ADD_FAILURE() << c.name << "=" << c.value << " was accepted";
    } catch (const std::runtime_error& e) {
      for (const char* part : {c.name, c.value, c.allowed})
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
}

TEST(Architectures, SayWhichGpusFindCode) {
  using cuda::has_code_for;
  const char* const usual = "80:90a-real";  // machine code and PTX of 8.0, and what is for 9.0 alone
  EXPECT_FALSE(has_code_for(usual, 7, 5));
  for (const int capability : {80, 86, 89, 90, 100, 120})
    EXPECT_TRUE(has_code_for(usual, capability / 10, capability % 10)) << capability;
  EXPECT_TRUE(has_code_for("90a-real", 9, 0));
  for (const int capability : {80, 89, 100, 121})
    EXPECT_FALSE(has_code_for("90a-real", capability / 10, capability % 10)) << capability;
  EXPECT_TRUE(has_code_for("80-real", 8, 6));
  EXPECT_FALSE(has_code_for("80-real", 9, 0));
  EXPECT_FALSE(has_code_for("86-real", 8, 0));
  EXPECT_TRUE(has_code_for("80-virtual", 9, 0));
  EXPECT_TRUE(has_code_for("75-real:100f-real", 10, 3));
  EXPECT_FALSE(has_code_for("75-real:100f-real", 12, 0));
  EXPECT_TRUE(has_code_for("native", 6, 1));
  EXPECT_FALSE(has_code_for("", 9, 0));
}

TEST(CpuBackend, StreamsAreCurrentByThread) {
  MT_CPU_ONLY();
  Backend& b = backend();
  EXPECT_EQ(b.current_stream(0), (Stream{0, 0}));
  const Stream s = b.pooled_stream(0, true);
  EXPECT_EQ(s.priority(), -1);
  EXPECT_EQ(b.pooled_stream(0, false).priority(), 0);
  EXPECT_EQ(b.exchange_stream(s), (Stream{0, 0}));
  EXPECT_EQ(b.current_stream(0), s);
  std::thread([&] { EXPECT_EQ(b.current_stream(0), (Stream{0, 0})); }).join();
  b.exchange_stream({0, 0});
}

TEST(Streams, OfAPoolComeBackInTurn) {
  Backend& b = backend();
  std::set<int64_t> pooled[2];
  for (int i = 0; i < 64; i++)
    for (const bool high : {false, true}) pooled[high].insert(b.pooled_stream(0, high).id);
  for (const bool high : {false, true}) {
    EXPECT_EQ(pooled[high].size(), 32u);
    EXPECT_FALSE(pooled[high].contains(0));
    for (const int64_t id : pooled[high]) EXPECT_EQ((Stream{0, id}.priority()), high ? -1 : 0);
  }
}

TEST(CpuBackend, EventsMeasureTime) {
  MT_CPU_ONLY();
  Backend& b = backend();
  Event *start = b.create_event(0, true), *end = b.create_event(0, true), *plain = b.create_event(0, false);
  EXPECT_TRUE(b.query_event(start));
  EXPECT_THROW(b.elapsed_ms(start, end), std::runtime_error);
  b.record_event(start, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  b.record_event(end, {});
  b.record_event(plain, {});
  EXPECT_GE(b.elapsed_ms(start, end), 5.0);
  EXPECT_LT(b.elapsed_ms(start, end), 5000.0);
  EXPECT_LE(b.elapsed_ms(end, start), -5.0);
  EXPECT_THROW(b.elapsed_ms(start, plain), std::runtime_error);
  for (Event* e : {start, end, plain}) b.destroy_event(e);
}

TEST(CpuBackend, RefusesAnotherDevice) {
  MT_CPU_ONLY();
  Backend& b = backend();
  try {
    b.set_device(7);
    FAIL();
  } catch (const InvalidDevice& e) {
    EXPECT_STREQ(
        e.what(),
        "minitorch error: invalid device ordinal: minitorch:7 was asked for, but 1 device is present (minitorch:0)");
  }
  EXPECT_THROW(synchronize(1), InvalidDevice);
  EXPECT_THROW(b.exchange_stream({3, 0}), InvalidDevice);
  EXPECT_NO_THROW(synchronize(0));
}

TEST(CpuBackend, LargeMemoryStartsAtAHugePage) {
  MT_CPU_ONLY();
  Backend& b = backend();
  const size_t bytes = size_t{6} << 20;
  void* p = b.system_allocate(0, bytes);
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (size_t{2} << 20), 0u);
  std::memset(p, 1, bytes);
  EXPECT_TRUE(b.system_decommit(0, p, size_t{2} << 20));
  EXPECT_EQ(static_cast<char*>(p)[5], 0);
  EXPECT_EQ(static_cast<char*>(p)[bytes - 1], 1);
  b.system_free(0, p, bytes);
  EXPECT_EQ(b.system_allocate(0, size_t{1} << 60), nullptr);
}

TEST(FormatBytes, HasPyTorchsNotation) {
  EXPECT_EQ(format_bytes(64), "64 bytes");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(size_t{512} << 20), "512.00 MiB");
  EXPECT_EQ(format_bytes(size_t{3} << 29), "1.50 GiB");
}

}  // namespace
}  // namespace minitorch
