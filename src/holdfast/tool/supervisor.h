// Supervisor: sees the workers of this machine through: passes their output on, forwards signals to them, ends the
// others when one fails, and leaves no process behind.
//
// One poll loop on the main thread, no other threads. How a worker ends, in steps:
//   running   until the kernel says that it has exited. Its end is reported at once; it stays a zombie for now,
//             so that its process group's number cannot be given to anybody else.
//   draining  until its pipes are at their end or its time is up: something it started may still hold them. The
//             time is 200 ms; while the job is being ended it is the rest of the grace period, as what it started
//             got the signal, too, and may be cleaning up.
//   reaped    its group has been killed and it was waited for. Bytes still in the pipes are passed on.
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

class Supervisor {
 public:
  // Told when a worker's process has ended, well or not, with a text that says how.
  using OnExit = std::function<void(Rank rank, const std::string& how)>;

  // `grace`: how long workers may take to end after they were asked to.
  Supervisor(Signals& signals, Output& output, Duration grace, OnExit on_exit);
  // Kills and reaps what is left, where run() was not reached or threw.
  ~Supervisor();

  void add(Rank rank, const std::string& name, ChildProcess process);
  // Returns when no worker is left and all output is written. The exit status for the whole job: 0 if all workers
  // exited with 0; else that of the first one that failed, 128 + signal if a signal ended the worker or the job.
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
    pid_t pid = -1;
    Stream out;
    Stream err;
    bool exited = false;
    bool reaped = false;
    Time drain_until = kNever;
  };

  bool is_done(Time now) const;
  Time next_deadline() const;
  void wait();
  void handle_signals();
  void on_user_signal(int signal);
  void check_exits(pid_t first);
  void check_exit(Worker& worker);
  void check_output();
  void read_stream(Stream& stream);
  void settle(Worker& worker, Time now);
  void on_time(Time now);

  void end(int status, int signal);
  void signal_all(int signal);
  void kill_all();

  Signals& signals_;
  Output& output_;
  const Duration grace_;
  const OnExit on_exit_;
  std::vector<Worker> workers_;
  std::vector<pollfd> polled_;  // of the current wait; the last ones belong to polled_streams_
  std::vector<Stream*> polled_streams_;
  std::string buffer_;
  std::optional<int> status_;  // of the job; the first one stays
  bool ending_ = false;        // workers were asked to end
  Time kill_at_ = kNever;      // when they will be killed
  bool killed_ = false;
  Time give_up_at_ = kNever;      // after the kill: when to stop waiting for output
  Time interrupted_at_ = kNever;  // the first SIGINT
};

}  // namespace holdfast
