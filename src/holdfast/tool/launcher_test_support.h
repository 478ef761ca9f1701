// For the tests of the command: runs the real `holdfast` binary, which stands beside the test program, with small
// shell programs as workers. One thread.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::testing {

// A folder that goes away with it.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "holdfast_tool_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  bool has(const std::string& name) const { return std::filesystem::exists(path(name)); }
  // "" if there is no such file.
  std::string read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  // -1 if there is no such file.
  pid_t read_pid(const std::string& name) const { return has(name) ? std::stoi(read(name)) : -1; }

 private:
  std::string path_;
};

// Asks again and again until it is so; false after a minute.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

// Neither gone nor a zombie that nobody has reaped yet: whose orphans get reaped is not our affair.
inline bool is_running(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos || name_end + 2 >= text.size()) return false;
  return text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

// One run of `holdfast`. Its stdout and stderr go to files in `folder`, unless `out_fd` or `err_fd` is given. Workers
// find the folder in $DIR. Killed on destruction if it still runs.
class Launcher {
 public:
  Launcher(const TempFolder& folder, std::vector<std::string> arguments, int out_fd = -1, int err_fd = -1)
      : folder_(folder) {
    const std::string program = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "holdfast").string();
    arguments.insert(arguments.begin(), program);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const std::string err_path = folder.path("stderr"), out_path = folder.path("stdout"), dir = folder.path("");
    pid_ = ::fork();
    if (pid_ != 0) return;
    // Whoever runs the tests may have these ignored (a background job of a script), which would be inherited.
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(number, SIG_DFL);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    ::dup2(out_fd >= 0 ? out_fd : ::open(out_path.c_str(), flags, 0600), 1);
    ::dup2(err_fd >= 0 ? err_fd : ::open(err_path.c_str(), flags, 0600), 2);
    for (int fd = 3; fd < 256; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::setenv("DIR", dir.c_str(), 1);
    ::execv(pointers[0], pointers.data());
    ::_exit(99);
  }
  ~Launcher() {
    if (ended()) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // The exit status, 128 + signal if a signal ended it. -1 if it still runs after a minute.
  int wait() {
    eventually([this] { return ended(); });
    return status_;
  }
  bool ended() {
    int status = 0;
    if (status_ == -1 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return status_ != -1;
  }
  void signal(int number) { ::kill(pid_, number); }
  std::string out() const { return folder_.read("stdout"); }
  std::string err() const { return folder_.read("stderr"); }

 private:
  const TempFolder& folder_;
  pid_t pid_ = -1;
  int status_ = -1;
};

// `run OPTIONS... /bin/sh -c SCRIPT`. The script may use `note NAME TEXT`, which makes the file NAME in $DIR, content
// and all in one step; `await NAME`, which waits for it; and $RANK.
inline std::vector<std::string> run_script(std::vector<std::string> options, const std::string& script) {
  static const std::string kPrelude =
      "RANK=$HOLDFAST_RANK\n"
      "note() { echo \"$2\" > \"$DIR/.$1\"; mv \"$DIR/.$1\" \"$DIR/$1\"; }\n"
      "await() { until [ -e \"$DIR/$1\" ]; do sleep 0.02; done; }\n";
  std::vector<std::string> all = {"run"};
  all.insert(all.end(), options.begin(), options.end());
  for (const std::string& word : {std::string("/bin/sh"), std::string("-c"), kPrelude + script}) all.push_back(word);
  return all;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// One run of the command, from start to end.
struct Outcome {
  int status;
  std::string out;
  std::string err;
};

inline Outcome run(const std::vector<std::string>& arguments) {
  TempFolder folder;
  Launcher launcher(folder, arguments);
  const int status = launcher.wait();
  return {status, launcher.out(), launcher.err()};
}

}  // namespace holdfast::testing
