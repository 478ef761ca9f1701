# How our own code is compiled: language, warnings, sanitizers, where the programs go.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo, MinSizeRel" FORCE)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees both where there are none: in std::optional, and in sums of strings.
  add_compile_options(-Wno-maybe-uninitialized -Wno-restrict)
  # So does g++ 13 with references that it takes to be to temporaries.
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    add_compile_options(-Wno-dangling-reference)
  endif()
  # g++ may use a gigabyte before it looks for memory to use again, which takes a tenth of its time.
  add_compile_options("SHELL:--param ggc-min-heapsize=1048576")
endif()
if(HOLDFAST_WARNINGS_AS_ERRORS)
  add_compile_options(-Werror)
endif()

if(HOLDFAST_SANITIZE)
  # No recovery: a finding must fail the test that made it, not only print.
  add_compile_options(-fsanitize=${HOLDFAST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HOLDFAST_SANITIZE})
endif()

# Used where it is installed, never required. It takes a third of the time of the usual linker.
find_program(HOLDFAST_GOLD ld.gold)
mark_as_advanced(HOLDFAST_GOLD)
if(HOLDFAST_BUILD_TESTS AND HOLDFAST_GOLD AND NOT HOLDFAST_SANITIZE)
  add_link_options(-fuse-ld=gold)
endif()

# Used where it is installed, never required.
find_program(HOLDFAST_CCACHE ccache)
mark_as_advanced(HOLDFAST_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND HOLDFAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HOLDFAST_CCACHE})
endif()
