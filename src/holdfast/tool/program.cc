#include <holdfast/tool/program.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include <fmt/format.h>

#include <holdfast/tool/launch_error.h>
#include <holdfast/transport/address.h>

namespace holdfast {

namespace {

// 0 if the file can be executed, else the errno that says why not.
int why_not_executable(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  if (!S_ISREG(info.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

bool is_missing(int error) { return error == ENOENT || error == ENOTDIR; }

}  // namespace

void cannot_execute(const std::string& path, int error) {
  throw LaunchError(kStatusNotExecutable, fmt::format("cannot run {}: {}", path, errno_text(error)));
}

std::string find_program(const std::string& program, const std::string& search_path) {
  if (program.find('/') != program.npos) {
    const int error = why_not_executable(program);
    if (is_missing(error))
      throw LaunchError(kStatusNotFound, fmt::format("cannot run {}: there is no such file", program));
    if (error != 0) cannot_execute(program, error);
    return program;
  }
  // As shells do, go on past a file that cannot be executed, and speak of it only if nothing better comes.
  std::string unusable;
  int unusable_error = 0;
  std::string_view rest = search_path;
  for (bool more = !program.empty(); more;) {
    const size_t colon = rest.find(':');
    more = colon != rest.npos;
    const std::string_view folder = rest.substr(0, colon);
    if (more) rest.remove_prefix(colon + 1);
    const std::string path = fmt::format("{}/{}", folder.empty() ? "." : folder, program);
    const int error = why_not_executable(path);
    if (error == 0) return path;
    if (!is_missing(error) && error != EISDIR && unusable.empty()) {
      unusable = path;
      unusable_error = error;
    }
  }
  if (!unusable.empty()) cannot_execute(unusable, unusable_error);
  const bool here = why_not_executable("./" + program) == 0;
  throw LaunchError(kStatusNotFound, fmt::format("cannot run {0}: there is no such program in PATH{1}", program,
                                                 here ? fmt::format("; did you mean ./{}?", program) : ""));
}

}  // namespace holdfast
