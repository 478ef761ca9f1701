// The `holdfast` command. Everything is in command.cc, where tests can link it.
#include <holdfast/tool/command.h>

int main(int argc, char** argv) { return holdfast::command_main(argc, argv); }
