// The first program: every worker greets the next one. Start it with `holdfast run -n 4 hello`.
#include <holdfast/holdfast.h>
#include <unistd.h>

#include <iostream>
#include <string>

namespace hf = holdfast;

// An ordinary function. Here it runs in the process of whoever is called.
std::string greet(const std::string& who) {
  return "Hello " + who + ", this is " + hf::current_worker().name() + " in process " + std::to_string(getpid());
}

int main() {
  hf::Worker worker(hf::Options::from_env());  // joins; returns when all workers are there
  hf::Peer next = worker.peer((worker.rank() + 1) % worker.world_size());
  std::cout << next.call<greet>(worker.name()) << std::endl;
  worker.shutdown();  // waits until no call is under way anywhere
}
