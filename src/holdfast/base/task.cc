#include <holdfast/base/task.h>

#include <holdfast/base/check.h>

namespace holdfast::task_detail {

namespace {

// One call of resume_flow() on this thread's stack. It stands here and not in the task, because once a
// task has suspended another thread may already be running it.
struct Flow {
  std::coroutine_handle<> next;
  TaskRoot* finished = nullptr;
};

thread_local Flow* current_flow = nullptr;

}  // namespace

void resume_flow(std::coroutine_handle<> first) {
  Flow flow{.next = first};
  Flow* outer = std::exchange(current_flow, &flow);
  while (flow.next) std::exchange(flow.next, nullptr).resume();
  current_flow = outer;
  if (flow.finished != nullptr) flow.finished->finish();
}

void resume_next(std::coroutine_handle<> next) {
  HOLDFAST_CHECK(current_flow != nullptr && !current_flow->next);
  current_flow->next = next;
}

void finish_next(TaskRoot* root) {
  HOLDFAST_CHECK(current_flow != nullptr && current_flow->finished == nullptr);
  current_flow->finished = root;
}

void throw_empty_task() {
  throw_failure({.code = Code::invalid_argument, .message = "this task is empty: it was moved from or awaited"});
}

}  // namespace holdfast::task_detail
