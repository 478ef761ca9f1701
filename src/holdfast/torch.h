// Everything of Holdfast with libtorch: tensors in calls, distributed autograd, distributed optimizers. The part
// without it is holdfast.h.
#pragma once

// a * b of tensors, which narrower headers of libtorch leave out.
#include <ATen/TensorOperators.h>

#include <holdfast/autograd/context.h>
#include <holdfast/holdfast.h>
#include <holdfast/optim/distributed_optimizer.h>
#include <holdfast/optim/lr_schedule.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/tensor/lendable.h>
#include <holdfast/tensor/operators.h>
#include <holdfast/tensor/script.h>
