#include <holdfast/tool/output.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace holdfast {

namespace {

bool is_same_file(int a, int b) {
  struct stat first = {}, second = {};
  if (::fstat(a, &first) != 0 || ::fstat(b, &second) != 0) return false;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool color_wanted(Color color, const Sink& sink) {
  if (color != Color::when_terminal) return color == Color::always;
  const char* terminal = std::getenv("TERM");
  return sink.is_terminal() && !is_set("NO_COLOR") && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace

Output::Output(OutputOptions options)
    : options_(options),
      out_(std::make_shared<Sink>(STDOUT_FILENO)),
      err_(is_same_file(STDOUT_FILENO, STDERR_FILENO) ? out_ : std::make_shared<Sink>(STDERR_FILENO)) {}

LineStream Output::stream(Sink& sink, const std::string& name, unsigned rank) const {
  return LineStream(sink, options_.prefix ? line_prefix(name, rank, color_wanted(options_.color, sink)) : "");
}

void Output::say(const std::string& text) {
  LineStream line(*err_, "holdfast: ");
  line.append(text);
  line.finish();
}

void Output::finish() {
  for (Sink* sink : {out_.get(), err_.get()}) {
    if (sink->last() == '\r') sink->append("\n");
  }
}

void Output::flush() {
  out_->flush();
  err_->flush();
}

}  // namespace holdfast
