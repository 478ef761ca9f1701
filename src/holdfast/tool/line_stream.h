// LineStream: the stdout or stderr of one worker, cut into lines. Each line goes to the Sink whole, with its
// prefix, so that lines of different workers never mix. One thread; the Sink must outlive it.
//
// "\r", which progress bars use, ends a piece, too: on a terminal it stays "\r", elsewhere it becomes "\n".
// "\r\n" is one line end. A line over 64 KiB is passed on in pieces that are lines of their own.
#pragma once

#include <string>
#include <string_view>

namespace holdfast {

class Sink;

class LineStream {
 public:
  LineStream(Sink& sink, std::string prefix) : sink_(sink), prefix_(std::move(prefix)) {}

  void append(std::string_view bytes);
  // The worker has ended: what is left is its last line, whether it ended with "\n" or not.
  void finish();
  Sink& sink() const { return sink_; }

 private:
  void emit(std::string_view text, char end);

  Sink& sink_;
  const std::string prefix_;
  std::string partial_;
};

// "[worker2] ", in one of eight colours by rank if `color`.
std::string line_prefix(const std::string& name, unsigned rank, bool color);

}  // namespace holdfast
