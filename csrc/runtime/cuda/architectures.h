// Which GPUs a build has code for. No CUDA header is needed, so that it is tested where there is none.
#pragma once
#include <cctype>
#include <string_view>

namespace minitorch::cuda {

// Whether code for `architectures`, CMake's CUDA_ARCHITECTURES with colons between ("80:90a-real"), runs on a GPU of
// this compute capability. Machine code serves later GPUs of its major version, PTX all later ones; either of an
// architecture with a letter ("a") serves that alone, and one of a family ("f") those of its major version that are not
// older.
inline bool has_code_for(std::string_view architectures, int major, int minor) {
  const int wanted = major * 10 + minor;
  while (!architectures.empty()) {
    const size_t end = architectures.find(':');
    std::string_view entry = architectures.substr(0, end);
    architectures.remove_prefix(end == std::string_view::npos ? architectures.size() : end + 1);
    int number = 0;
    while (!entry.empty() && std::isdigit(static_cast<unsigned char>(entry.front()))) {
      number = number * 10 + (entry.front() - '0');
      entry.remove_prefix(1);
    }
    if (number == 0) return true;  // "native", "all": not told here
    const char letter = entry.empty() || entry.front() == '-' ? ' ' : entry.front();
    const bool real = !entry.ends_with("-virtual"), ptx = !entry.ends_with("-real");
    if (letter == 'a' ? wanted == number : letter == 'f' ? number / 10 == major && number <= wanted : false)
      return true;
    if (letter == ' ' && number <= wanted && (ptx || (real && number / 10 == major))) return true;
  }
  return false;
}

}  // namespace minitorch::cuda
