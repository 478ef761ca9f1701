// Holdfast without libtorch: everything that a program needs to join a job, call and be called.
#pragma once

#include <holdfast/base/error.h>
#include <holdfast/base/future.h>
#include <holdfast/base/task.h>
#include <holdfast/base/when.h>
#include <holdfast/rpc/options.h>
#include <holdfast/rpc/peer.h>
#include <holdfast/rpc/worker.h>
