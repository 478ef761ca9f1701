// A program outside Holdfast: it uses the installed headers and links the installed libraries.
#include <cstdio>
#include <memory>
#include <optional>

#include <holdfast/base/error.h>
#include <holdfast/wire/frame.h>

int main() {
  auto message = std::make_shared<holdfast::Message>();
  message->kind = {96};
  message->body = {1, 2, 3};
  const holdfast::Bytes bytes =
      holdfast::encode_frame({.header = {.kind = message->kind, .sequence = 7}, .message = message});
  const std::optional<holdfast::InFrame> frame = holdfast::decode_frame(bytes);
  if (!frame || frame->header.sequence != 7 || frame->message.body != message->body) {
    std::puts("the frame came back different");
    return 1;
  }
  try {
    holdfast::throw_failure({.code = holdfast::Code::timeout, .message = "too late"});
  } catch (const holdfast::Timeout& error) {
    std::printf("caught: %s\n", error.what());
    return 0;
  }
  return 1;
}
