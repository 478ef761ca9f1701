// Gil: takes the GIL on a thread of the core, for as long as it lives.
//
// A thread that takes it for the first time gets a Python thread state, and keeps it until the thread ends. Without
// that each taking would make one and throw it away: with the stack for Python frames, and with all that
// threading.local holds.
#pragma once

#include <optional>

#include "held.h"

namespace holdfast::python {

class KeptThreadState {
 public:
  // On a thread that Python does not know.
  KeptThreadState() {
    PyGILState_Ensure();
    state_ = PyEval_SaveThread();
  }
  ~KeptThreadState() {
    if (!interpreter_runs()) return;  // it has been freed with all others
    PyEval_RestoreThread(state_);
    PyGILState_Release(PyGILState_UNLOCKED);  // the last: frees it
  }
  KeptThreadState(const KeptThreadState&) = delete;
  KeptThreadState& operator=(const KeptThreadState&) = delete;

 private:
  PyThreadState* state_;
};

// While the interpreter runs. This thread is one that Python knows from now on.
inline void keep_thread_state() {
  if (PyGILState_GetThisThreadState() != nullptr) return;
  thread_local std::optional<KeptThreadState> kept;
  kept.emplace();
}

class Gil {
 public:
  // While the interpreter runs.
  Gil() {
    keep_thread_state();
    state_ = PyGILState_Ensure();
  }
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace holdfast::python
