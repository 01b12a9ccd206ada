// Reading of the MINITORCH_* variables. Nonsense is refused here, before anything depends on it.
#include "runtime/environment.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

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

constexpr std::string_view kPrefix = "MINITORCH_";
constexpr std::string_view kNames[] = {
    "BACKEND", "ISA", "FALLBACK", "MEMORY_LIMIT", "EXPANDABLE_SEGMENTS", "POISON", "LAUNCH_BLOCKING", "PEER_ACCESS"};
// Of the build and of the package; those that resemble no name above need not be here.
constexpr std::string_view kNamesElsewhere[] = {"ISAS"};

// Levenshtein's distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); i++) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); j++) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string misspelt_variable(const char* const* names) {
  for (; *names != nullptr; names++) {
    std::string_view name(*names);
    name = name.substr(0, name.find('='));
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view rest = name.substr(kPrefix.size());
    const auto is_rest = [&](std::string_view known) { return known == rest; };
    if (std::ranges::any_of(kNames, is_rest) || std::ranges::any_of(kNamesElsewhere, is_rest)) continue;
    for (const std::string_view known : kNames)
      if (distance(rest, known) <= std::clamp<size_t>(known.size() / 3, 1, 3))
        return "the environment variable " + std::string(name) + " is not known to minitorch and has no effect; " +
               std::string(kPrefix) + std::string(known) + " is. Was that meant?";
  }
  return "";
}

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
  e.peer_access = choose("MINITORCH_PEER_ACCESS", read("MINITORCH_PEER_ACCESS"), true, {{"0", false}, {"1", true}});
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
