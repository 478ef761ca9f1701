#include <holdfast/tool/line_stream.h>

#include <fmt/format.h>

#include <holdfast/tool/sink.h>

namespace holdfast {

namespace {

constexpr size_t kLineBytesMax = 64 << 10;
// After "\r" (written to terminals only) the old text is still there, and the new one may be shorter.
constexpr std::string_view kEraseLine = "\x1b[K";

}  // namespace

void LineStream::emit(std::string_view text, char end) {
  if (sink_.last() == '\r') sink_.append(kEraseLine);
  sink_.append(prefix_);
  sink_.append(text);
  sink_.append(std::string_view(&end, 1));
}

void LineStream::append(std::string_view bytes) {
  // partial_ holds no line end except, maybe, a last "\r", so only from its end on there is something to find.
  size_t searched = partial_.ends_with('\r') ? partial_.size() - 1 : partial_.size();
  partial_ += bytes;
  const std::string_view all = partial_;
  size_t begin = 0;
  for (;;) {
    const size_t at = all.find_first_of("\r\n", searched);
    if (at == all.npos) break;
    // Whether "\r" is half of "\r\n" is known when the next byte is there.
    if (all[at] == '\r' && at + 1 == all.size()) break;
    const std::string_view text = all.substr(begin, at - begin);
    const bool is_progress = all[at] == '\r' && all[at + 1] != '\n';
    // Programs that put "\r" first have an empty piece before it.
    if (!is_progress) {
      emit(text, '\n');
    } else if (!text.empty()) {
      emit(text, sink_.is_terminal() ? '\r' : '\n');
    }
    begin = searched = at + (all[at] == '\r' && !is_progress ? 2 : 1);
  }
  while (all.size() - begin > kLineBytesMax) {
    emit(all.substr(begin, kLineBytesMax), '\n');
    begin += kLineBytesMax;
  }
  partial_.erase(0, begin);
}

void LineStream::finish() {
  if (partial_.ends_with('\r')) partial_.pop_back();
  if (!partial_.empty()) emit(partial_, '\n');
  partial_.clear();
}

std::string line_prefix(const std::string& name, unsigned rank, bool color) {
  static constexpr int kColors[] = {36, 33, 32, 35, 34, 31, 96, 93};
  if (!color) return fmt::format("[{}] ", name);
  return fmt::format("\x1b[{}m[{}]\x1b[0m ", kColors[rank % std::size(kColors)], name);
}

}  // namespace holdfast
