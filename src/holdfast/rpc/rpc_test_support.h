// For the tests of this layer: jobs of real workers on loopback, in one process and in others of their own.
//
// A Worker's constructor returns only when everybody is there, so join() runs each on a thread. Waiting in tests
// is always for a condition and always bounded: a test that hangs fails by itself.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <holdfast/base/task.h>
#include <holdfast/base/when.h>
#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/rpc/worker.h>

namespace holdfast::test {

using namespace std::chrono_literals;

// Longer than anything takes that works, on a busy machine under a sanitizer.
inline constexpr Duration kPatience = 40s;

// Looks until the condition holds. False: it did not within the patience.
template <class Condition>
bool eventually(Condition&& condition) {
  const Time until = after(steady_now(), kPatience);
  while (!condition()) {
    if (steady_now() >= until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Runs something that must throw an E, and gives the E back.
template <class E, class F>
E expect_throw(F&& run) {
  try {
    run();
  } catch (const E& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return E(Failure{.message = "(another exception)"});
  }
  ADD_FAILURE() << "no exception";
  return E(Failure{.message = "(no exception)"});
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_PRED2([](const auto& t, const auto& p) { return ::holdfast::test::contains(t, p); }, text, std::string(part))

// A handler that calls this is never taken for a quick one: the handler threads run it, in the order of the calls.
inline void take_a_while() { std::this_thread::sleep_for(200us); }

// Where handlers wait until the test lets them go on. They wait on a bare condition variable, of which the library
// knows nothing: such a handler keeps its thread.
class Gate {
 public:
  // For handlers. False: nobody opened it.
  bool pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::nanoseconds(kPatience), [this] { return open_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool wait_for_arrivals(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(kPatience), [&] { return arrived_ >= count; });
  }
  int arrived() const {
    std::lock_guard lock(mutex_);
    return arrived_;
  }
  void reset() {
    std::lock_guard lock(mutex_);
    open_ = false;
    arrived_ = 0;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

// Runs all of them at once, each on a thread; throws again what the first of them threw.
inline void run_together(const std::vector<std::function<void()>>& runs) {
  std::vector<std::exception_ptr> problems(runs.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < runs.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        runs[i]();
      } catch (...) {
        problems[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& problem : problems) {
    if (problem) std::rethrow_exception(problem);
  }
}

inline std::vector<std::unique_ptr<Worker>> join(const std::vector<Options>& options) {
  std::vector<std::unique_ptr<Worker>> workers(options.size());
  std::vector<std::function<void()>> runs;
  for (size_t i = 0; i < options.size(); ++i) {
    runs.emplace_back([&, i] { workers[i] = std::make_unique<Worker>(options[i]); });
  }
  run_together(runs);
  return workers;
}

inline void shut_down(const std::vector<Worker*>& workers) {
  std::vector<std::function<void()>> runs;
  for (Worker* worker : workers) runs.emplace_back([worker] { worker->shutdown(); });
  run_together(runs);
}

// A coordinator on loopback, and the options of those who join it.
class TestCoordinator {
 public:
  explicit TestCoordinator(int world_size, Duration lease = 30s, std::string job = "test", Security security = {})
      : world_size_(world_size),
        job_(std::move(job)),
        security_(std::move(security)),
        server_({.job = job_, .world_size = static_cast<uint32_t>(world_size), .lease = lease}, {},
                {.tls = make_tls(security_).take()}) {}

  Options options(int rank) const {
    Options options;
    options.rank = rank;
    options.world_size = world_size_;
    options.coordinator = server_.address();
    options.job = job_;
    options.security = security_;
    options.timeout = kPatience;
    options.join_timeout = kPatience;
    options.shutdown_timeout = kPatience;
    options.handler_threads = 2;
    return options;
  }
  CoordinatorServer& server() { return server_; }
  const std::string& address() const { return server_.address(); }

 private:
  const int world_size_;
  const std::string job_;
  const Security security_;
  CoordinatorServer server_;
};

// A job whose workers all live in this process.
class TestJob {
 public:
  explicit TestJob(int size, const std::function<void(Options&)>& adjust = {}, Duration lease = 30s,
                   std::string job = "test")
      : coordinator_(size, lease, std::move(job)) {
    std::vector<Options> all;
    for (int rank = 0; rank < size; ++rank) {
      all.push_back(coordinator_.options(rank));
      if (adjust) adjust(all.back());
    }
    workers_ = join(all);
  }

  Worker& operator[](int rank) { return *workers_.at(static_cast<size_t>(rank)); }
  int size() const { return static_cast<int>(workers_.size()); }
  CoordinatorServer& coordinator() { return coordinator_.server(); }
  const std::string& coordinator_address() const { return coordinator_.address(); }
  bool has(int rank) const { return workers_.at(static_cast<size_t>(rank)) != nullptr; }
  // Without shutdown.
  void destroy(int rank) { workers_.at(static_cast<size_t>(rank)).reset(); }

  // No call is under way anywhere.
  bool quiet() {
    return eventually([&] {
      for (auto& worker : workers_) {
        if (worker && (worker->stats().calls_made != 0 || worker->stats().calls_served != 0)) return false;
      }
      return true;
    });
  }
  // The graceful end of all that are left; nothing may be left under way.
  void shutdown() {
    std::vector<Worker*> left;
    for (auto& worker : workers_) {
      if (worker) left.push_back(worker.get());
    }
    shut_down(left);
    for (Worker* worker : left) {
      EXPECT_EQ(worker->stats().calls_made, 0u) << worker->name();
      EXPECT_EQ(worker->stats().calls_served, 0u) << worker->name();
    }
  }

 private:
  TestCoordinator coordinator_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// ---- workers in processes of their own: this test program again, with a role

inline constexpr const char* kRoleVariable = "HOLDFAST_TEST_ROLE";

// What a process of this program may be started as. Filled before main().
inline std::map<std::string, int (*)()>& roles() {
  static std::map<std::string, int (*)()> all;
  return all;
}

struct Role {
  Role(const std::string& name, int (*run)()) { roles()[name] = run; }
};

// Before any test: a process with a role plays it and ends.
class RoleEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* role = std::getenv(kRoleVariable);
    if (role == nullptr) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // never outlive the test
    int result = 99;
    try {
      result = roles().at(role)();
    } catch (const std::exception& error) {
      fprintf(stderr, "role %s: %s\n", role, error.what());
    }
    std::exit(result);
  }
};
inline ::testing::Environment* const role_environment = ::testing::AddGlobalTestEnvironment(new RoleEnvironment);

// A worker in a process of its own, which takes its Options from the environment. Killed at the end if it still runs.
class TestProcess {
 public:
  TestProcess(const std::string& role, const Options& options, std::map<std::string, std::string> variables = {}) {
    variables[kRoleVariable] = role;
    variables["HOLDFAST_RANK"] = std::to_string(*options.rank);
    variables["HOLDFAST_WORLD_SIZE"] = std::to_string(options.world_size);
    variables["HOLDFAST_COORDINATOR"] = options.coordinator;
    variables["HOLDFAST_JOB"] = options.job;
    std::vector<std::string> texts;
    for (char** at = environ; *at != nullptr; ++at) {
      const std::string text = *at;
      if (!text.starts_with("HOLDFAST_") && !text.starts_with("GTEST_")) texts.push_back(text);
    }
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    std::string program = "rpc_tests_role";
    char* arguments[] = {program.data(), nullptr};
    const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environment.data());
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0) << "cannot start the process";
    if (error != 0) pid_ = -1;
  }
  ~TestProcess() {
    if (pid_ < 0) return;
    signal(SIGKILL);
    wait();
  }
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;

  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  // How it ended: its exit code, or minus the signal.
  int wait() {
    if (pid_ < 0) return -1000;
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace holdfast::test
