// Reading of the MINITORCH_* variables. Nonsense is refused here, before anything depends on it.
#include "runtime/environment.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <utility>

namespace minitorch {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& allowed) {
  throw std::runtime_error(name + "='" + value + "' is not understood; allowed: " + allowed);
}

template <class T>
T choose(const char* name, const std::string& value, T absent,
         std::initializer_list<std::pair<const char*, T>> choices) {
  if (value.empty()) return absent;
  std::string allowed;
  for (const auto& [text, choice] : choices) {
    if (value == text) return choice;
    allowed += allowed.empty() ? text : std::string(", ") + text;
  }
  refuse(name, value, allowed);
}

// "1073741824", "1024M", "1.5GiB": a positive number of bytes with an optional binary unit.
size_t parse_bytes(const char* name, const std::string& value) {
  const char* allowed = "a positive number of bytes with an optional unit K, M, G or T, such as 512M or 1.5GiB";
  errno = 0;
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (end == value.c_str() || errno == ERANGE || !std::isfinite(number)) refuse(name, value, allowed);
  std::string unit(end);
  double scale = 1;
  if (const size_t exponent = unit.empty() ? std::string::npos : std::string("KMGT").find(unit[0]);
      exponent != std::string::npos) {
    scale = std::ldexp(1.0, 10 * (static_cast<int>(exponent) + 1));
    unit.erase(0, 1);
    if (unit.starts_with("i")) unit.erase(0, 1);
  }
  if (!unit.empty() && unit != "B") refuse(name, value, allowed);
  const double bytes = number * scale;
  if (bytes < 1 || bytes > std::ldexp(1.0, 62)) refuse(name, value, allowed);
  return static_cast<size_t>(bytes);
}

}  // namespace

Environment parse_environment(const char* (*get)(const char*)) {
  const auto read = [&](const char* name) {
    const char* value = get(name);
    return std::string(value ? value : "");
  };
  Environment e;
  e.backend = choose("MINITORCH_BACKEND", read("MINITORCH_BACKEND"), BackendChoice::automatic,
                     {{"cpu", BackendChoice::cpu}, {"cuda", BackendChoice::cuda}});
  e.isa = choose<const char*>("MINITORCH_ISA", read("MINITORCH_ISA"), "",
                              {{"baseline", "baseline"}, {"avx2", "avx2"}, {"avx512", "avx512"}});
  e.fallback =
      choose("MINITORCH_FALLBACK", read("MINITORCH_FALLBACK"), FallbackPolicy::warn,
             {{"error", FallbackPolicy::error}, {"warn", FallbackPolicy::warn}, {"allow", FallbackPolicy::allow}});
  e.poison = choose("MINITORCH_POISON", read("MINITORCH_POISON"), false, {{"0", false}, {"1", true}});
  e.expandable_segments = choose("MINITORCH_EXPANDABLE_SEGMENTS", read("MINITORCH_EXPANDABLE_SEGMENTS"), false,
                                 {{"0", false}, {"1", true}});
  e.launch_blocking =
      choose("MINITORCH_LAUNCH_BLOCKING", read("MINITORCH_LAUNCH_BLOCKING"), false, {{"0", false}, {"1", true}});
  if (const std::string limit = read("MINITORCH_MEMORY_LIMIT"); !limit.empty())
    e.memory_limit = parse_bytes("MINITORCH_MEMORY_LIMIT", limit);
  return e;
}

const Environment& environment() {
  static const Environment parsed =
      parse_environment([](const char* name) -> const char* { return std::getenv(name); });
  return parsed;
}

}  // namespace minitorch
