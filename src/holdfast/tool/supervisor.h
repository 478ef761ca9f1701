// Supervisor: sees the workers of this machine through: passes their output on, forwards signals to them, starts those
// that fail again or ends the others, and leaves no process behind. Owned by `run`.
//
// One poll loop on the main thread, no other threads. How a worker ends, in steps:
//   running   until the kernel says that it has exited. Its end is reported at once; it stays a zombie for now,
//             so that its process group's number cannot be given to anybody else.
//   draining  until its pipes are at their end or its time is up: something it started may still hold them. The
//             time is 200 ms; while the job is being ended it is the rest of the grace period, as what it started
//             got the signal, too, and may be cleaning up.
//   reaped    its group has been killed and it was waited for. Bytes still in the pipes are passed on.
// A worker that is to be started again runs anew when it is reaped and its pipes are empty: two lives of one worker
// never overlap, nor do their lines. Once the job is ending nothing is started any more.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/base/ids.h>
#include <holdfast/base/time.h>
#include <holdfast/tool/child.h>
#include <holdfast/tool/output.h>
#include <holdfast/tool/signals.h>

namespace holdfast {

struct SupervisorOptions {
  Duration grace{};           // how long workers may take to end after they were asked to
  uint32_t restarts_max = 0;  // so many failures, of all workers together, are answered by starting the worker again
  Duration restart_delay{};   // at least so long after its end
};

class Supervisor {
 public:
  // Starts the process of that rank, the first time or again. Throws LaunchError.
  using Start = std::function<ChildProcess(Rank rank)>;
  // Told when a worker's process has ended, well or not, with a text that says how, and whether it is started again.
  // If it is: told once more, right before.
  using OnExit = std::function<void(Rank rank, const std::string& how, bool returns)>;

  Supervisor(Signals& signals, Output& output, SupervisorOptions options, Start start, OnExit on_exit);
  // Kills and reaps what is left, where run() was not reached or threw.
  ~Supervisor();

  // Starts it. Throws LaunchError.
  void add(Rank rank, const std::string& name);
  // Returns when no worker is left and all output is written. The exit status for the whole job: 0 if all workers
  // exited with 0, at the latest after a restart; else that of the first one that failed and was not started again,
  // 128 + signal if a signal ended the worker or the job.
  int run();

 private:
  struct Stream {
    Fd fd;  // open until its end, or until `left_bytes` have been read
    LineStream lines;
    bool ready = false;                // poll says that it can be read
    std::optional<size_t> left_bytes;  // set when the worker is reaped: read no more than this
  };
  struct Worker {
    Rank rank;
    std::string name;
    Stream out;
    Stream err;
    // Of its current life; begin() sets them all.
    pid_t pid = -1;
    bool exited = false;
    bool reaped = false;
    Time drain_until = kNever;
    std::string how_it_ended;
    std::optional<Time> restart_at;  // set at its end, if it is to be started again

    void begin(ChildProcess process);
    // Its process is gone and all that it wrote was read.
    bool gone() const { return reaped && !out.fd.open() && !err.fd.open(); }
  };

  bool is_done(Time now) const;
  Time next_deadline() const;
  void wait();
  void handle_signals();
  void on_user_signal(int signal);
  void check_exits(pid_t first);
  void check_exit(Worker& worker);
  bool may_restart() const { return !status_ && restarts_ < options_.restarts_max; }
  void on_failure(Worker& worker, int status);
  void restart(Worker& worker);
  void check_output();
  void read_stream(Stream& stream);
  void settle(Worker& worker, Time now);
  void on_time(Time now);

  void end(int status, int signal);
  void signal_all(int signal);
  void kill_all();

  Signals& signals_;
  Output& output_;
  const SupervisorOptions options_;
  const Start start_;
  const OnExit on_exit_;
  std::vector<Worker> workers_;
  std::vector<pollfd> polled_;  // of the current wait; the last ones belong to polled_streams_
  std::vector<Stream*> polled_streams_;
  std::string buffer_;
  uint32_t restarts_ = 0;      // granted so far
  std::optional<int> status_;  // of the job; the first one stays
  bool ending_ = false;        // workers were asked to end
  Time kill_at_ = kNever;      // when they will be killed
  bool killed_ = false;
  Time give_up_at_ = kNever;      // after the kill: when to stop waiting for output
  Time interrupted_at_ = kNever;  // the first SIGINT
};

}  // namespace holdfast
