// Holdfast without libtorch: everything that a program needs to join a job, call and be called, and hold
// references to objects of other workers.
#pragma once

#include <holdfast/base/awake_cores.h>
#include <holdfast/base/error.h>
#include <holdfast/base/future.h>
#include <holdfast/base/task.h>
#include <holdfast/base/when.h>
#include <holdfast/rpc/options.h>
#include <holdfast/rpc/peer.h>
#include <holdfast/rpc/worker.h>
#include <holdfast/rref/debug_info.h>
#include <holdfast/rref/rref.h>
