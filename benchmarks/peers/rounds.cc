#include "rounds.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <vector>

namespace holdfast::bench {

uint16_t start_server(const std::function<void(const std::function<void(uint16_t)>&)>& serve) {
  int port_pipe[2];
  if (pipe(port_pipe) != 0) throw std::runtime_error("pipe failed");
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve([&](uint16_t port) {
      if (write(port_pipe[1], &port, sizeof(port)) != sizeof(port)) _exit(1);
    });
    _exit(0);
  }
  close(port_pipe[1]);
  uint16_t port = 0;
  if (read(port_pipe[0], &port, sizeof(port)) != sizeof(port)) throw std::runtime_error("the server did not start");
  close(port_pipe[0]);
  return port;
}

int answer(Rounds& rounds) {
  std::printf("ready\n");
  std::fflush(stdout);
  std::string what;
  size_t bytes = 0, count = 0, in_flight = 0;
  while (std::cin >> what >> bytes >> count >> in_flight) {
    const double result = what == "latency" ? rounds.latency_us(bytes, count)
                          : what == "rate"  ? rounds.calls_per_second(bytes, count, in_flight)
                                            : rounds.gigabytes_per_second(bytes, count, in_flight);
    std::printf("%f\n", result);
    std::fflush(stdout);
  }
  return 0;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median_us(size_t count, const std::function<void()>& once) {
  std::vector<double> us(count);
  for (double& one : us) one = seconds_of(once) * 1e6;
  std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(count / 2), us.end());
  return us[count / 2];
}

}  // namespace holdfast::bench
