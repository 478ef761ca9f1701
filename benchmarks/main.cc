// holdfast_bench [--list] [--quick] [--out FOLDER] [--versions TEXT] [NAME...]: runs the benchmarks named, or all; with
// --out, also writes their results there. --versions: of what they are compared with, to be written beside them.
#include <sys/utsname.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "benchmarks.h"

using namespace holdfast::bench;

namespace {

const std::vector<Benchmark> kBenchmarks = {
    {"rpc", "a small call there and back, and many in flight, beside raw TCP", run_rpc},
    {"rref", "references made, used, shared and dropped; what they cost", run_rref},
    {"growth", "costs as workers, calls and references grow in number, with exponents", run_growth},
#ifdef HOLDFAST_WITH_TORCH
    {"peers", "the same calls by gRPC, Cap'n Proto, UCX and torch.distributed.rpc", run_peers},
    {"tensor", "large tensors one way, beside a raw socket and a copy in memory", run_tensor},
    {"autograd", "a training step over two workers, beside torch.distributed.rpc", run_autograd},
#endif
};

int usage() {
  fmt::print(stderr, "usage: ./bench [--list] [--quick] [NAME...]\n");
  return 2;
}

std::string describe_system() {
  utsname system{};
  uname(&system);
  std::string model = "unknown processor";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  return fmt::format("Holdfast {}, {} {}, {} x {}", HOLDFAST_VERSION, system.sysname, system.release,
                     std::thread::hardware_concurrency(), model);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::vector<std::string> names;
  std::string folder, versions;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--list") {
      for (const Benchmark& benchmark : kBenchmarks) fmt::print("{:<10} {}\n", benchmark.name, benchmark.what);
      return 0;
    }
    if (word == "--quick") {
      settings.quick = true;
    } else if (word == "--out" && i + 1 < argc) {
      folder = argv[++i];
    } else if (word == "--versions" && i + 1 < argc) {
      versions = argv[++i];
    } else if (word.starts_with('-')) {
      return usage();
    } else {
      names.push_back(word);
    }
  }
  std::vector<const Benchmark*> chosen;
  for (const std::string& name : names) {
    const Benchmark* found = nullptr;
    for (const Benchmark& benchmark : kBenchmarks) {
      if (benchmark.name == name) found = &benchmark;
    }
    if (found == nullptr) {
      fmt::print(stderr, "there is no benchmark {}; see ./bench --list\n", name);
      return 2;
    }
    chosen.push_back(found);
  }
  if (chosen.empty()) {
    for (const Benchmark& benchmark : kBenchmarks) chosen.push_back(&benchmark);
  }
  const std::string system = describe_system() + (versions.empty() ? "" : "; ") + versions;
  fmt::print("{}; medians of the rounds, with their range\n", system);
  for (const Benchmark* benchmark : chosen) {
    fmt::print("{}: {}\n", benchmark->name, benchmark->what);
    Report report(benchmark->name, system);
    benchmark->run(settings, report);
    if (!folder.empty()) report.write_files(folder);
  }
}
