#include "peer_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

namespace holdfast::bench {

namespace {

// One that was free a moment ago.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), length);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace

PeerProcess::PeerProcess(const std::vector<std::string>& command, std::string packages)
    : packages_(std::move(packages)) {
  std::vector<std::string> words = command;
  if (command[0].ends_with(".py")) {
    words[0] = std::string(HOLDFAST_PEERS) + "/" + command[0];
    // By its whole name: the one with Debian's torch, for the processes that it starts too.
    words.insert(words.begin(), "/usr/bin/python3");
    words.push_back(std::to_string(free_port()));
  } else {
    words[0] = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / command[0]).string();
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int to[2], from[2];
  // Closed in peers that are started later: as long as one has it open, the input of this one does not end.
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);  // it has children of its own
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  setpgid(pid_, pid_);
  close(to[0]);
  close(from[1]);
  to_ = fdopen(to[1], "w");
  from_ = fdopen(from[0], "r");
}

PeerProcess::~PeerProcess() {
  send_signal(SIGCONT);
  fclose(to_);  // the end of its input: it ends
  fclose(from_);
  for (int tenths = 0; there_ && tenths < 100; ++tenths) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    usleep(100'000);
  }
  send_signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void PeerProcess::send_signal(int signal) { kill(-pid_, signal); }

bool PeerProcess::read_line(std::string& line) {
  char buffer[256];
  if (fgets(buffer, sizeof(buffer), from_) == nullptr) return false;
  line = buffer;
  return true;
}

bool PeerProcess::there() {
  if (asked_) return there_;
  asked_ = true;
  std::string line;
  there_ = read_line(line) && line == "ready\n";
  if (there_) send_signal(SIGSTOP);
  return there_;
}

double PeerProcess::ask(const std::string& request) {
  std::string line;
  send_signal(SIGCONT);
  if (fprintf(to_, "%s\n", request.c_str()) < 0 || fflush(to_) != 0 || !read_line(line)) {
    throw std::runtime_error("a peer has ended: " + request);
  }
  send_signal(SIGSTOP);
  return std::stod(line);
}

}  // namespace holdfast::bench
