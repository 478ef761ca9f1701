#include <holdfast/base/awake_cores.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace holdfast {

namespace {

// Whoever has it open bounds how long a core may take to wake, by the number in it.
constexpr const char* kFile = "/dev/cpu_dma_latency";
constexpr int32_t kWakeWithinUs = 0;

}  // namespace

Result<std::unique_ptr<AwakeCores>> AwakeCores::keep() {
  const int fd = ::open(kFile, O_WRONLY | O_CLOEXEC);
  if (fd >= 0 && ::write(fd, &kWakeWithinUs, sizeof(kWakeWithinUs)) == sizeof(kWakeWithinUs)) {
    return std::unique_ptr<AwakeCores>(new AwakeCores(fd));
  }
  const int error = errno;
  if (fd >= 0) ::close(fd);
  return Failure{.code = Code::unavailable,
                 .message = std::string("cannot write to ") + kFile + ": " + std::strerror(error) +
                            " (it takes root, or a rule for udev that lets you)"};
}

AwakeCores::~AwakeCores() { ::close(fd_); }

}  // namespace holdfast
