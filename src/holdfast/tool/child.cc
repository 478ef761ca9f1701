#include <holdfast/tool/child.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include <fmt/format.h>

#include <holdfast/tool/launch_error.h>
#include <holdfast/tool/program.h>
#include <holdfast/tool/signals.h>
#include <holdfast/transport/address.h>

namespace holdfast {

namespace {

struct Pipe {
  Fd read;
  Fd write;
};

// Every descriptor closes on exec: a child must not hold another child's pipe open.
Pipe make_pipe(const std::string& path) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    throw LaunchError(1, fmt::format("cannot start {}: no pipe for its output: {}", path, errno_text(errno)));
  }
  return {Fd(fds[0]), Fd(fds[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

struct Prepared {
  const char* path;
  char** arguments;
  char** environment;
  int in, out, err, report, kept;
  pid_t launcher;
  const Signals& signals;
  const rlimit& descriptors;
};

// In the new process: only calls that are safe between fork and exec where other threads exist.
[[noreturn]] void become(const Prepared& prepared) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.launcher) ::_exit(1);  // it died before the line above took effect
  if (::dup2(prepared.in, 0) == 0 && ::dup2(prepared.out, 1) == 1 && ::dup2(prepared.err, 2) == 2) {
    ::setrlimit(RLIMIT_NOFILE, &prepared.descriptors);
    prepared.signals.restore_in_child();
    if (prepared.kept >= 0) ::fcntl(prepared.kept, F_SETFD, 0);
    ::execve(prepared.path, prepared.arguments, prepared.environment);
  }
  const int error = errno;
  // Whoever reads it gets these four bytes, or nothing if exec went well.
  [[maybe_unused]] const ssize_t written = ::write(prepared.report, &error, sizeof(error));
  ::_exit(kStatusNotExecutable);
}

// The errno with which exec failed; 0 if it did not.
int exec_error(const Fd& report) {
  int error = 0;
  ssize_t count;
  do {
    count = ::read(report.get(), &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  return count == sizeof(error) ? error : 0;
}

[[noreturn]] void cannot_start(const std::string& path, int error) {
  if (error == ENOENT) {
    // The file was there a moment ago: what is missing is most likely what its first line names.
    throw LaunchError(kStatusNotFound, fmt::format("cannot run {}: it, or the interpreter it names, is missing", path));
  }
  cannot_execute(path, error);
}

}  // namespace

rlimit raise_descriptor_limit() {
  rlimit original = {};
  ::getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

ChildProcess start_child(const ChildSpec& spec, const Signals& signals, const rlimit& descriptors) {
  Pipe out = make_pipe(spec.path);
  Pipe err = make_pipe(spec.path);
  Pipe report = make_pipe(spec.path);
  Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.open()) throw LaunchError(1, "cannot open /dev/null: " + errno_text(errno));
  std::vector<char*> arguments = pointers(spec.arguments);
  std::vector<char*> environment = pointers(spec.environment);
  const Prepared prepared{.path = spec.path.c_str(),
                          .arguments = arguments.data(),
                          .environment = environment.data(),
                          .in = null.get(),
                          .out = out.write.get(),
                          .err = err.write.get(),
                          .report = report.write.get(),
                          .kept = spec.kept_fd,
                          .launcher = ::getpid(),
                          .signals = signals,
                          .descriptors = descriptors};

  const pid_t pid = ::fork();
  if (pid < 0) throw LaunchError(1, fmt::format("cannot start {}: {}", spec.path, errno_text(errno)));
  if (pid == 0) become(prepared);

  report.write.reset();
  if (const int error = exec_error(report.read); error != 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    cannot_start(spec.path, error);
  }
  ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  return {.pid = pid, .out = std::move(out.read), .err = std::move(err.read)};
}

}  // namespace holdfast
