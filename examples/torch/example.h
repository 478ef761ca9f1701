// What the examples in this folder share, none of it about Holdfast: options from the command line, a progress bar, a
// stopwatch, and the main() in which worker 0 leads and the others serve.
#pragma once

#include <holdfast/torch.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>

namespace example {

namespace hf = holdfast;

// "--name value" pairs. Ask for each option, then call finish(): what nobody asked for is a mistake. So are too few
// workers.
class Arguments {
 public:
  Arguments(int argc, char** argv, int workers, int workers_min) : workers_(workers), workers_min_(workers_min) {
    for (int i = 1; i < argc && problem_.empty(); i += 2) {
      const std::string name = argv[i];
      if (name == "--help") {
        problem_ = "help";
      } else if (!name.starts_with("--")) {
        problem_ = "what is " + name + "?";
      } else if (i + 1 == argc) {
        problem_ = name + " needs a value";
      } else {
        given_[name.substr(2)] = argv[i + 1];
      }
    }
  }
  std::string text(const std::string& name, const std::string& usual) {
    usage_ += " [--" + name + " " + usual + "]";
    const auto found = given_.find(name);
    if (found == given_.end()) return usual;
    std::string value = std::move(found->second);
    given_.erase(found);
    return value;
  }
  int64_t number(const std::string& name, int64_t usual, int64_t least = 1) {
    const std::string value = text(name, std::to_string(usual));
    int64_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < least) {
      problem_ = "--" + name + " takes a number from " + std::to_string(least);
    }
    return result;
  }
  // The first one is the usual one.
  std::string choice(const std::string& name, std::initializer_list<std::string> choices) {
    std::string all;
    for (const std::string& choice : choices) all += (all.empty() ? "" : "|") + choice;
    std::string value = text(name, all);
    if (value == all) return *choices.begin();
    if (std::find(choices.begin(), choices.end(), value) == choices.end()) problem_ = "--" + name + " takes " + all;
    return value;
  }
  void finish() const {
    std::string problem = problem_;
    if (problem.empty() && !given_.empty()) problem = "--" + given_.begin()->first + " is not an option";
    if (!problem.empty()) throw std::invalid_argument(problem + "\nOptions, and what they are if not given:" + usage_);
    if (workers_ >= workers_min_) return;
    throw std::invalid_argument("this needs at least " + std::to_string(workers_min_) + " workers, and has " +
                                std::to_string(workers_) + ": start it with holdfast run -n " +
                                std::to_string(workers_min_));
  }

 private:
  std::map<std::string, std::string> given_;
  std::string usage_, problem_;
  const int workers_, workers_min_;
};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A line that is written over itself twenty times: on a terminal, and under `holdfast run` on one. In a file each is a
// line of its own.
class Progress {
 public:
  Progress(std::string title, int64_t total) : title_(std::move(title)), total_(total) {}
  void show(int64_t done, const std::string& note) {
    const int64_t part = kParts * done / total_;
    if (part == shown_ && done != total_) return;
    shown_ = part;
    std::string bar(static_cast<size_t>(part), '#');
    bar.resize(kParts, '.');
    // The launcher reads our lines through a pipe, and turns "\r" into what suits its own output.
    const bool in_place = isatty(STDERR_FILENO) || std::getenv("HOLDFAST_LOCAL_RANK") != nullptr;
    std::fprintf(stderr, "%s [%s] %s%c", title_.c_str(), bar.c_str(), note.c_str(),
                 in_place && done != total_ ? '\r' : '\n');
  }

 private:
  static constexpr int64_t kParts = 20;
  const std::string title_;
  const int64_t total_;
  int64_t shown_ = -1;
};

inline int lead_or_complain(const std::string& name, hf::Worker& worker, Arguments& arguments,
                            int (*lead)(hf::Worker&, Arguments&)) try {
  return lead(worker, arguments);
} catch (const std::invalid_argument& error) {  // the others need not know: they are told to end as usual
  std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
  return 2;
}

// Worker 0 leads: it runs `lead`, whose result is the exit status. The others serve until it has all it wants.
inline int run(const std::string& name, int workers_min, int argc, char** argv, int (*lead)(hf::Worker&, Arguments&)) {
  try {
    at::set_num_threads(1);  // the workers share this machine's cores: together they are the threads
    hf::Worker worker(hf::Options::from_env());
    Arguments arguments(argc, argv, worker.world_size(), workers_min);
    int status = 0;
    if (worker.rank() == 0) status = lead_or_complain(name, worker, arguments, lead);
    worker.shutdown(hf::kForever);
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}

}  // namespace example
