// The first program: every worker greets the next one. Start it with `holdfast run -n 4 hello`.
#include <holdfast/holdfast.h>

#include <iostream>

namespace hf = holdfast;

std::string greet(std::string from) { return "hello " + from + ", this is " + hf::current_worker().name(); }

int main() {
  hf::Worker worker(hf::Options::from_env());  // joins; returns when all are there
  hf::Peer next = worker.peer((worker.rank() + 1) % worker.world_size());
  std::cout << next.call<greet>(worker.name()) << std::endl;
  worker.shutdown();  // waits until no call is under way anywhere
}
