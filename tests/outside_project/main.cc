// A program outside Holdfast: it uses the installed headers and libraries. The second worker computes, the first
// one prints. Start it with `holdfast run -n 2 outside`.
#include <holdfast/holdfast.h>

#include <iostream>

int add(int a, int b) { return a + b; }

int main() {
  holdfast::Worker worker(holdfast::Options::from_env());
  if (worker.rank() == 0) std::cout << worker.peer("worker1").call<add>(40, 2) << std::endl;
  worker.shutdown();
}
