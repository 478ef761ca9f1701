// Counts the words in all files below a directory. Worker 0 hands the files out, the others count, several
// files at a time; a file whose worker dies goes to another one. Files travel as paths: all workers must see
// the same file system, on one machine or shared. Start it with `holdfast run -n 4 word_count DIR`.
#include <holdfast/holdfast.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hf = holdfast;
namespace fs = std::filesystem;

// What a worker answers. A struct can travel once its fields are listed.
struct FileCounts {
  std::unordered_map<std::string, size_t> words;
  size_t bytes = 0;
  bool binary = false;  // then nothing was counted
  HOLDFAST_FIELDS(FileCounts, words, bytes, binary)
};

// Runs on the worker that is called; what it throws is thrown again where it was called from. A word is made of
// letters, digits and all that is not ASCII, which takes in the letters of other languages.
FileCounts count_words(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot be opened");
  FileCounts result;
  std::string word;
  std::vector<char> buffer(64 << 10);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const std::string_view bytes(buffer.data(), static_cast<size_t>(file.gcount()));
    if (bytes.find('\0') != bytes.npos) return {.binary = true};
    result.bytes += bytes.size();
    for (const unsigned char c : bytes) {
      if (std::isalnum(c) || c >= 0x80) {
        word += static_cast<char>(std::tolower(c));
      } else if (!word.empty()) {
        ++result.words[std::exchange(word, {})];
      }
    }
  }
  if (!word.empty()) ++result.words[word];
  return result;
}

// What is left to do, and what came out. The lanes below run on any of worker 0's threads: hence the lock.
struct Job {
  std::mutex mutex;  // guards what follows
  std::deque<std::string> files;
  size_t files_total = 0;
  size_t files_done = 0;
  size_t files_binary = 0;
  size_t bytes = 0;
  std::map<std::string, size_t> words;
  std::map<std::string, size_t> files_of_worker;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  std::optional<std::string> next() {
    std::lock_guard lock(mutex);
    if (files.empty()) return std::nullopt;
    std::string path = std::move(files.front());
    files.pop_front();
    return path;
  }
  void give_back(std::string path) {
    std::lock_guard lock(mutex);
    files.push_back(std::move(path));
  }
  void add(const std::string& worker, const FileCounts& counts) {
    std::lock_guard lock(mutex);
    ++files_done;
    ++files_of_worker[worker];
    files_binary += counts.binary ? 1 : 0;
    bytes += counts.bytes;
    for (const auto& [word, count] : counts.words) words[word] += count;
  }
  void skip(const std::string& path, const char* why) {
    std::lock_guard lock(mutex);
    --files_total;
    std::fprintf(stderr, "skipped %s: %s\n", path.c_str(), why);
  }
  bool done() {
    std::lock_guard lock(mutex);
    return files_done == files_total;
  }
};

// One of the calls in flight to one worker: takes a file, waits for its counts, takes the next one.
hf::Task<> lane(Job& job, hf::Peer peer) {
  while (std::optional<std::string> path = job.next()) {
    try {
      job.add(peer.name(), co_await peer.async<count_words>(*path));
    } catch (const hf::WorkerLost& error) {
      std::fprintf(stderr, "%s; another worker gets %s\n", error.what(), path->c_str());
      job.give_back(*path);
      co_return;
    } catch (const std::exception& error) {
      job.skip(*path, error.what());
    }
  }
}

// All workers but this one that are still there; this one if it is alone.
std::vector<hf::Peer> find_counters(hf::Worker& worker) {
  std::vector<hf::Peer> counters;
  for (int rank = 1; rank < worker.world_size(); ++rank) {
    try {
      counters.push_back(worker.peer(rank));
    } catch (const hf::InvalidArgument&) {
      // Lost, and its files were given back.
    }
  }
  if (counters.empty()) counters.push_back(worker.self());
  return counters;
}

void show_progress(Job& job, bool in_place) {
  std::lock_guard lock(job.mutex);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - job.start).count();
  const double megabytes = static_cast<double>(job.bytes) / 1e6;
  std::string bar(30 * job.files_done / std::max<size_t>(1, job.files_total), '#');
  bar.resize(30, '.');
  std::fprintf(stderr, "[%s] %zu/%zu files, %.1f MB, %.1f MB/s%s", bar.c_str(), job.files_done, job.files_total,
               megabytes, megabytes / seconds, in_place ? "\r" : "\n");
}

void count_all(hf::Worker& worker, Job& job) {
  constexpr int kLanesPerWorker = 4;
  while (!job.done()) {  // again only if workers were lost at the end and their files are left
    std::vector<hf::Future<void>> lanes;
    for (const hf::Peer& peer : find_counters(worker)) {
      // No timeout: a large file takes as long as it takes, and the death of a worker is noticed anyway.
      for (int i = 0; i < kLanesPerWorker; ++i) lanes.push_back(hf::start(lane(job, peer.with_timeout(hf::kForever))));
    }
    const hf::Future<void> all = hf::when_all(lanes);
    while (!all.wait_for(std::chrono::milliseconds(100))) {
      if (isatty(STDERR_FILENO)) show_progress(job, true);
    }
    all.get();
  }
  show_progress(job, false);
}

void show_result(const Job& job, size_t top) {
  for (const auto& [worker, files] : job.files_of_worker)
    std::fprintf(stderr, "%s: %zu files\n", worker.c_str(), files);
  std::vector<std::pair<size_t, std::string>> words;
  size_t total = 0;
  for (const auto& [word, count] : job.words) {
    words.emplace_back(count, word);
    total += count;
  }
  std::stable_sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < std::min(top, words.size()); ++i) {
    std::printf("%9zu %s\n", words[i].first, words[i].second.c_str());
  }
  std::printf("%zu words, %zu different, in %zu files (and %zu binary files, not counted)\n", total, words.size(),
              job.files_done - job.files_binary, job.files_binary);
}

// The regular files below a directory. Symbolic links are not followed.
void list_files(const fs::path& directory, Job& job) {
  std::error_code error;
  const fs::directory_iterator entries(directory, error);
  if (error) std::fprintf(stderr, "skipped %s: %s\n", directory.c_str(), error.message().c_str());
  for (const fs::directory_entry& entry : entries) {
    if (entry.is_symlink(error)) continue;
    if (entry.is_directory(error)) list_files(entry.path(), job);
    if (entry.is_regular_file(error)) job.files.push_back(entry.path().string());
  }
  job.files_total = job.files.size();
}

// DIR, or DIR --top N. False: anything else.
bool parse(int argc, char** argv, std::string& directory, size_t& top) {
  if ((argc != 2 && argc != 4) || argv[1][0] == '-') return false;
  directory = argv[1];
  if (argc == 2) return true;
  const std::string_view text = argv[3];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), top);
  return std::string_view(argv[2]) == "--top" && error == std::errc() && end == text.data() + text.size();
}

int run(hf::Worker& worker, int argc, char** argv) {
  std::string directory;
  size_t top = 10;
  if (!parse(argc, argv, directory, top)) {
    std::fputs("Usage: word_count DIR [--top COUNT]\n", stderr);
    return 2;
  }
  if (!fs::is_directory(directory)) {
    std::fprintf(stderr, "word_count: there is no directory %s\n", directory.c_str());
    return 1;
  }
  Job job;
  list_files(fs::absolute(directory), job);
  count_all(worker, job);
  show_result(job, top);
  return 0;
}

int main(int argc, char** argv) {
  try {
    hf::Worker worker(hf::Options::from_env());
    const int status = worker.rank() == 0 ? run(worker, argc, argv) : 0;  // the others only serve
    worker.shutdown(hf::kForever);                                        // until worker 0 has all it wants
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "word_count: %s\n", error.what());
    return 1;
  }
}
