#include <holdfast/tool/line_stream.h>

#include <fcntl.h>
#include <stdlib.h>

#include <string>

#include <gtest/gtest.h>

#include <holdfast/tool/fd.h>
#include <holdfast/tool/sink.h>

namespace holdfast {
namespace {

// What comes out of `pieces`, given one after the other, then the end.
std::string cut(std::initializer_list<std::string> pieces, int fd = -1) {
  Sink sink(fd);
  LineStream lines(sink, "> ");
  for (const std::string& piece : pieces) lines.append(piece);
  lines.finish();
  return std::string(sink.pending());
}

TEST(LineStream, LinesAreWhole) {
  EXPECT_EQ(cut({"a\nb\n"}), "> a\n> b\n");
  EXPECT_EQ(cut({"a", "b", "\n", "c\n"}), "> ab\n> c\n");
  EXPECT_EQ(cut({"\n\n"}), "> \n> \n");
  EXPECT_EQ(cut({""}), "");
}

TEST(LineStream, NothingIsWrittenBeforeTheLineIsWhole) {
  Sink sink(-1);
  LineStream lines(sink, "> ");
  lines.append("half");
  EXPECT_EQ(sink.pending(), "");
  lines.append(" a line\nand");
  EXPECT_EQ(sink.pending(), "> half a line\n");
}

TEST(LineStream, LastLineGetsItsEnd) {
  EXPECT_EQ(cut({"a\nb"}), "> a\n> b\n");
  EXPECT_EQ(cut({"a\r"}), "> a\n");
}

TEST(LineStream, CarriageReturns) {
  EXPECT_EQ(cut({"a\r\nb\r\n"}), "> a\n> b\n");
  EXPECT_EQ(cut({"a\r", "\nb"}), "> a\n> b\n");
  EXPECT_EQ(cut({"10%\r20%\r", "30%\n"}), "> 10%\n> 20%\n> 30%\n");
  EXPECT_EQ(cut({"\r10%", "\r20%\n"}), "> 10%\n> 20%\n");
}

TEST(LineStream, CarriageReturnsOnATerminal) {
  Fd main(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(main.open());
  ASSERT_EQ(::grantpt(main.get()), 0);
  ASSERT_EQ(::unlockpt(main.get()), 0);
  Fd terminal(::open(::ptsname(main.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.open());
  EXPECT_EQ(cut({"10%\r20%\r", "30%\n"}, terminal.get()), "> 10%\r\x1b[K> 20%\r\x1b[K> 30%\n");
  EXPECT_EQ(cut({"a\r\nb\n"}, terminal.get()), "> a\n> b\n");
}

TEST(LineStream, LongLinesPassInPieces) {
  const std::string piece(64 << 10, 'x');
  Sink sink(-1);
  LineStream lines(sink, "> ");
  lines.append(piece + "yz");
  EXPECT_EQ(sink.pending(), "> " + piece + "\n");
  lines.append("\n");
  EXPECT_EQ(sink.pending(), "> " + piece + "\n> yz\n");
}

TEST(LineStream, PrefixHasOneOfEightColors) {
  EXPECT_EQ(line_prefix("worker3", 3, false), "[worker3] ");
  EXPECT_EQ(line_prefix("w", 1, true), line_prefix("w", 9, true));
  for (unsigned rank = 1; rank < 8; ++rank) EXPECT_NE(line_prefix("w", 0, true), line_prefix("w", rank, true));
}

}  // namespace
}  // namespace holdfast
