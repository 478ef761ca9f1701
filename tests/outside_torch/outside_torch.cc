// A gradient that comes from another worker.
#include <holdfast/torch.h>

#include <ATen/ops/ones.h>

#include <iostream>

namespace hf = holdfast;

at::Tensor scale(const at::Tensor& t, double by) { return t * by; }

int main() {
  hf::Worker worker(hf::Options::from_env());
  if (worker.rank() == 0) {
    const at::Tensor x = at::ones({2, 3}).set_requires_grad(true);
    hf::autograd::Context context(worker);
    context.backward({worker.peer(1).call<scale>(x, 7.0).sum()});
    std::cout << context.gradient(x).sum().item<double>() << std::endl;
  }
  worker.shutdown();
}
