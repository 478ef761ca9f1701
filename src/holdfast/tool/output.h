// Output: everything the launcher writes: the lines of all workers, and its own messages. Owned by `run`; one
// thread. Lines that workers write to stdout go to stdout, those to stderr to stderr.
#pragma once

#include <memory>
#include <string>

#include <holdfast/tool/line_stream.h>
#include <holdfast/tool/sink.h>

namespace holdfast {

enum class Color { when_terminal, always, never };

struct OutputOptions {
  bool prefix = true;
  Color color = Color::when_terminal;  // with NO_COLOR set, when_terminal means never
};

class Output {
 public:
  explicit Output(OutputOptions options);

  LineStream out_of(const std::string& name, unsigned rank) { return stream(*out_, name, rank); }
  LineStream err_of(const std::string& name, unsigned rank) { return stream(*err_, name, rank); }
  // A line of the launcher itself, on stderr.
  void say(const std::string& text);

  // All workers have ended: leaves the terminal's cursor below their last lines.
  void finish();

  Sink& out() { return *out_; }
  // The same as out() where stdout and stderr are one terminal, file or pipe: then their lines must not mix either.
  Sink& err() { return *err_; }
  void flush();
  bool has_pending() const { return !out_->pending().empty() || !err_->pending().empty(); }

 private:
  LineStream stream(Sink& sink, const std::string& name, unsigned rank) const;

  const OutputOptions options_;
  const std::shared_ptr<Sink> out_;
  const std::shared_ptr<Sink> err_;
};

}  // namespace holdfast
