// Sink: one of the launcher's own outputs, written without ever blocking on it.
//
// Whoever reads our stdout may stop reading (a pager, a terminal held with Ctrl-S); the launcher must still see
// signals and its children's ends. The descriptor is shared with other processes, so it cannot be made
// non-blocking; instead we ask poll and write no more at once than a pipe takes whole. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace holdfast {

class Sink {
 public:
  // Does not own the descriptor.
  explicit Sink(int fd);

  // Queues it. Nothing is kept once a write has failed.
  void append(std::string_view text);
  // Writes what can be written now.
  void flush();

  int fd() const { return fd_; }
  bool is_terminal() const { return is_terminal_; }
  std::string_view pending() const { return std::string_view(buffer_).substr(written_); }
  char last() const { return last_; }  // the last byte that was appended
  // While false, nobody should read more from the children: so what is queued stays bounded.
  bool has_room() const;
  // The errno of the write that failed (EPIPE: the reader is gone); 0 while all is well.
  int error() const { return error_; }

 private:
  const int fd_;
  const bool is_terminal_;
  const size_t chunk_bytes_;
  std::string buffer_;
  size_t written_ = 0;  // how much of buffer_ is out already
  char last_ = '\n';
  int error_ = 0;
};

}  // namespace holdfast
