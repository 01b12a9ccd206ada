// PyTorch warns whenever a kernel is replaced. While one of these lives, this thread's warnings go nowhere.
#pragma once
#include <c10/util/Exception.h>

namespace minitorch {

class Quiet {
 public:
  Quiet() : guard_(&handler_) {}

 private:
  struct Handler : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace minitorch
