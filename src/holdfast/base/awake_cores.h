// AwakeCores: while one lives, idle cores of this machine wait awake instead of going to sleep, so a thread that is
// woken runs within a microsecond or two. From its sleep a core takes 20 to 50 us, on virtual machines above all. It
// costs power, and on a virtual machine what the host would do with the core meanwhile. Linux only:
// /dev/cpu_dma_latency, which needs root, or a udev rule that lets others write to it. The kernel forgets it when the
// process ends, however.
#pragma once

#include <memory>

#include <holdfast/base/error.h>

namespace holdfast {

class AwakeCores {
 public:
  // Unavailable, with the reason, where this may not be asked for.
  static Result<std::unique_ptr<AwakeCores>> keep();
  ~AwakeCores();
  AwakeCores(const AwakeCores&) = delete;
  AwakeCores& operator=(const AwakeCores&) = delete;

 private:
  explicit AwakeCores(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace holdfast
