// What most sources with libtorch include, but nothing of the layers tensor and above, one of which reads it first. See
// holdfast_precompile in HoldfastTargets.cmake. No source may rely on it: the preset release does without.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <ATen/TensorOperators.h>

#include <holdfast/holdfast.h>
