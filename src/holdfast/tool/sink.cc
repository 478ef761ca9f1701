#include <holdfast/tool/sink.h>

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace holdfast {

namespace {

constexpr size_t kPendingBytesMax = 1 << 20;

// A pipe that poll calls writable takes PIPE_BUF bytes at least; a file never blocks.
size_t chunk_bytes(int fd) {
  struct stat info = {};
  const bool is_file = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  return is_file ? kPendingBytesMax : PIPE_BUF;
}

}  // namespace

Sink::Sink(int fd) : fd_(fd), is_terminal_(::isatty(fd) == 1), chunk_bytes_(chunk_bytes(fd)) {}

void Sink::append(std::string_view text) {
  if (error_ != 0 || text.empty()) return;
  buffer_ += text;
  last_ = text.back();
}

bool Sink::has_room() const { return pending().size() < kPendingBytesMax; }

void Sink::flush() {
  while (written_ < buffer_.size()) {
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    const ssize_t count = ::write(fd_, buffer_.data() + written_, std::min(chunk_bytes_, buffer_.size() - written_));
    if (count >= 0) {
      written_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      error_ = errno;
      written_ = buffer_.size();
    }
  }
  if (written_ == buffer_.size() || written_ > kPendingBytesMax) {
    buffer_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace holdfast
