#include <holdfast/tool/supervisor.h>

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include <holdfast/base/check.h>
#include <holdfast/tool/launch_error.h>
#include <holdfast/transport/address.h>

namespace holdfast {

namespace {

constexpr Duration kDrainTime = std::chrono::milliseconds(200);
// `timeout` and some terminals send a signal to us and to our group: the same one twice, a moment apart. That is
// not somebody who has lost patience.
constexpr Duration kEchoTime = std::chrono::milliseconds(200);
constexpr size_t kReadBytes = 64 << 10;

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

int status_of(const siginfo_t& info) { return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status; }

std::string describe(const std::string& name, const siginfo_t& info) {
  const std::string who = fmt::format("{} (pid {})", name, info.si_pid);
  if (info.si_code == CLD_EXITED) return fmt::format("{} exited with status {}", who, info.si_status);
  return fmt::format("{} was killed by {}{}", who, signal_name(info.si_status),
                     info.si_code == CLD_DUMPED ? " (core dumped)" : "");
}

int poll_ms(Time until) {
  if (until == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000));
}

}  // namespace

Supervisor::Supervisor(Signals& signals, Output& output, SupervisorOptions options, Start start, OnExit on_exit)
    : signals_(signals),
      output_(output),
      options_(options),
      start_(std::move(start)),
      on_exit_(std::move(on_exit)),
      buffer_(kReadBytes, '\0') {}

Supervisor::~Supervisor() {
  signal_all(SIGKILL);
  for (Worker& worker : workers_) {
    while (!worker.reaped && ::waitpid(worker.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Supervisor::Worker::begin(ChildProcess process) {
  pid = process.pid;
  exited = reaped = false;
  drain_until = kNever;
  how_it_ended.clear();
  restart_at.reset();
  out.fd = std::move(process.out);
  err.fd = std::move(process.err);
  for (Stream* stream : {&out, &err}) {
    stream->ready = false;
    stream->left_bytes.reset();
  }
}

void Supervisor::add(Rank rank, const std::string& name) {
  ChildProcess process = start_(rank);
  workers_.push_back({.rank = rank,
                      .name = name,
                      .out = {Fd(), output_.out_of(name, rank.value)},
                      .err = {Fd(), output_.err_of(name, rank.value)}});
  workers_.back().begin(std::move(process));
}

int Supervisor::run() {
  while (!is_done(steady_now())) {
    wait();
    handle_signals();
    for (Worker& worker : workers_) {
      read_stream(worker.out);
      read_stream(worker.err);
    }
    on_time(steady_now());
    check_output();
  }
  output_.finish();
  output_.flush();
  return status_.value_or(0);
}

bool Supervisor::is_done(Time now) const {
  for (const Worker& worker : workers_) {
    if (!worker.gone() || worker.restart_at) return false;
  }
  return !output_.has_pending() || now >= give_up_at_;
}

Time Supervisor::next_deadline() const {
  Time next = std::min(killed_ ? kNever : kill_at_, give_up_at_ > steady_now() ? give_up_at_ : kNever);
  for (const Worker& worker : workers_) {
    if (worker.exited && !worker.reaped) next = std::min(next, worker.drain_until);
    if (worker.gone() && worker.restart_at) next = std::min(next, *worker.restart_at);
  }
  return next;
}

void Supervisor::wait() {
  polled_.clear();
  polled_.push_back({.fd = signals_.fd(), .events = POLLIN, .revents = 0});
  for (const Sink* sink : {&output_.out(), &output_.err()}) {
    if (!sink->pending().empty()) polled_.push_back({.fd = sink->fd(), .events = POLLOUT, .revents = 0});
  }
  polled_streams_.clear();
  for (Worker& worker : workers_) {
    for (Stream* stream : {&worker.out, &worker.err}) {
      stream->ready = false;
      if (!stream->fd.open() || !stream->lines.sink().has_room()) continue;
      polled_.push_back({.fd = stream->fd.get(), .events = POLLIN, .revents = 0});
      polled_streams_.push_back(stream);
    }
  }
  if (::poll(polled_.data(), polled_.size(), poll_ms(next_deadline())) <= 0) return;
  const size_t first = polled_.size() - polled_streams_.size();
  for (size_t i = 0; i < polled_streams_.size(); ++i) polled_streams_[i]->ready = polled_[first + i].revents != 0;
}

// ---- signals

void Supervisor::handle_signals() {
  while (const auto event = signals_.next()) {
    if (event->signal == SIGCHLD) {
      check_exits(event->pid);
    } else {
      on_user_signal(event->signal);
    }
  }
}

void Supervisor::on_user_signal(int signal) {
  const Time now = steady_now();
  if (!ending_) {
    end(128 + signal, signal);
  } else if (signal == SIGINT && interrupted_at_ != kNever) {
    if (now > interrupted_at_ + kEchoTime) kill_all();
  } else {
    signal_all(signal);
  }
  if (signal == SIGINT && interrupted_at_ == kNever) interrupted_at_ = now;
}

void Supervisor::end(int status, int signal) {
  if (!status_) status_ = status;
  ending_ = true;
  kill_at_ = after(steady_now(), options_.grace);
  for (Worker& worker : workers_) {
    worker.restart_at.reset();
    if (worker.exited && !worker.reaped) worker.drain_until = kill_at_;
  }
  signal_all(signal);
}

void Supervisor::signal_all(int signal) {
  for (const Worker& worker : workers_) {
    if (worker.reaped) continue;
    ::kill(-worker.pid, signal);
    ::kill(-worker.pid, SIGCONT);  // a stopped process would not see it
  }
}

void Supervisor::kill_all() {
  if (killed_) return;
  killed_ = true;
  give_up_at_ = after(steady_now(), kDrainTime);
  for (Worker& worker : workers_) {
    if (worker.reaped) continue;
    if (!worker.exited) output_.say(fmt::format("killing {} (pid {}), which did not end", worker.name, worker.pid));
    if (worker.exited) worker.drain_until = give_up_at_;
  }
  signal_all(SIGKILL);
}

// ---- ends of workers

void Supervisor::check_exits(pid_t first) {
  // Several signals merge into one, but the process that it names is the one that ended first: it is the cause,
  // the others may have failed because of it.
  for (Worker& worker : workers_) {
    if (worker.pid == first) check_exit(worker);
  }
  for (Worker& worker : workers_) check_exit(worker);
  if (!status_ || ending_) return;
  const auto running = std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited; });
  if (running > 0)
    output_.say(fmt::format("ending the other {}", running == 1 ? "worker" : fmt::format("{} workers", running)));
  end(*status_, SIGTERM);
}

void Supervisor::check_exit(Worker& worker) {
  if (worker.exited) return;
  siginfo_t info = {};
  // Not reaped yet, see the top of supervisor.h.
  if (::waitid(P_PID, static_cast<id_t>(worker.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return;
  worker.exited = true;
  worker.drain_until = ending_ && !killed_ ? kill_at_ : after(steady_now(), kDrainTime);
  worker.how_it_ended = describe(worker.name, info);
  const int status = status_of(info);
  const bool failed = status != 0 && !ending_;
  on_exit_(worker.rank, worker.how_it_ended, failed && may_restart());
  if (failed) on_failure(worker, status);
}

void Supervisor::on_failure(Worker& worker, int status) {
  const uint32_t restarts_max = options_.restarts_max;
  if (may_restart()) {
    ++restarts_;
    worker.restart_at = after(steady_now(), options_.restart_delay);
    const double delay_s = std::chrono::duration<double>(options_.restart_delay).count();
    output_.say(fmt::format("{}; starting it again{} (restart {} of {})", worker.how_it_ended,
                            delay_s > 0 ? fmt::format(" in {:g} s", delay_s) : "", restarts_, restarts_max));
    return;
  }
  output_.say(restarts_max == 0 ? worker.how_it_ended
                                : fmt::format("{}; no restart is left of {}", worker.how_it_ended, restarts_max));
  if (!status_) status_ = status;
}

void Supervisor::restart(Worker& worker) {
  // Once more: if it died while it joined, its JOIN may have been read only after we said that it is dead, and its
  // rank would be taken.
  on_exit_(worker.rank, worker.how_it_ended, true);
  try {
    worker.begin(start_(worker.rank));
  } catch (const LaunchError& error) {
    output_.say(fmt::format("{} cannot be started again: {}", worker.name, error.what()));
    end(error.status(), SIGTERM);
  }
}

void Supervisor::settle(Worker& worker, Time now) {
  if (!worker.exited || worker.reaped) return;
  if ((worker.out.fd.open() || worker.err.fd.open()) && now < worker.drain_until) return;
  ::kill(-worker.pid, SIGKILL);  // what it started and left behind
  while (::waitpid(worker.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  worker.reaped = true;
  for (Stream* stream : {&worker.out, &worker.err}) {
    int left = 0;
    if (stream->fd.open()) ::ioctl(stream->fd.get(), FIONREAD, &left);
    stream->left_bytes = static_cast<size_t>(left);
  }
}

void Supervisor::on_time(Time now) {
  if (now >= kill_at_) kill_all();
  for (Worker& worker : workers_) {
    settle(worker, now);
    if (!worker.reaped) continue;
    for (Stream* stream : {&worker.out, &worker.err}) {
      if (!stream->fd.open() || (*stream->left_bytes > 0 && now < give_up_at_)) continue;
      stream->lines.finish();
      stream->fd.reset();
    }
    if (worker.gone() && worker.restart_at && now >= *worker.restart_at) restart(worker);
  }
}

// ---- output

void Supervisor::read_stream(Stream& stream) {
  if (!stream.ready || !stream.fd.open() || !stream.lines.sink().has_room()) return;
  const size_t wanted = std::min(buffer_.size(), stream.left_bytes.value_or(buffer_.size()));
  const ssize_t count = ::read(stream.fd.get(), buffer_.data(), wanted);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    stream.lines.finish();
    stream.fd.reset();
    return;
  }
  stream.lines.append(std::string_view(buffer_).substr(0, static_cast<size_t>(count)));
  if (stream.left_bytes) *stream.left_bytes -= static_cast<size_t>(count);
}

void Supervisor::check_output() {
  output_.flush();
  // Nobody reads the workers' results any more. (If only stderr is gone they may still be of use.)
  const int error = output_.out().error();
  if (error == 0 || ending_) return;
  if (error != EPIPE) output_.say("cannot write to stdout: " + errno_text(error));
  end(error == EPIPE ? 128 + SIGPIPE : 1, SIGTERM);
}

}  // namespace holdfast
