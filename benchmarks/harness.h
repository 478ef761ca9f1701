// What the benchmarks share: latencies and their percentiles, child processes, and a table of named benchmarks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "report.h"

namespace holdfast::bench {

struct Settings {
  bool quick = false;
  // The work of one round, shortened by --quick.
  size_t scaled(size_t count) const { return quick ? count / 10 + 1 : count; }
  size_t rounds() const { return quick ? 3 : 7; }
};

struct Benchmark {
  std::string name;
  std::string what;
  std::function<void(const Settings&, Report&)> run;
};

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Latencies of one round, in microseconds.
class Latencies {
 public:
  void add(std::chrono::steady_clock::duration took) {
    us_.push_back(std::chrono::duration<double, std::micro>(took).count());
  }
  void add(const Latencies& others) { us_.insert(us_.end(), others.us_.begin(), others.us_.end()); }
  void reserve(size_t count) { us_.reserve(count); }
  double percentile(double p);

 private:
  std::vector<double> us_;
};

// A child process that runs `body` and is ended when this object goes.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Ends it at once, as a crash would.
  void kill();
  // Waits until `body` has returned; false if it threw, or the process was ended.
  bool wait();

 private:
  void end(int signal);

  pid_t pid_;  // -1: it has ended
};

}  // namespace holdfast::bench
