# Functions that turn folders into libraries and programs.

# The .cc files of `folder`, split into `<prefix>_sources` and `<prefix>_tests`.
macro(holdfast_glob prefix folder)
  file(GLOB ${prefix}_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cc)
  set(${prefix}_tests ${${prefix}_sources})
  list(FILTER ${prefix}_sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER ${prefix}_tests INCLUDE REGEX "_test\\.cc$")
endmacro()

# holdfast_precompile(target...): these include libtorch's headers, which take longer to read than what follows to compile.
# With HOLDFAST_PRECOMPILE they are read once, for the first target (holdfast_tensor), and all others take them from there.
# For that all must be compiled with the same options and definitions.
function(holdfast_precompile)
  if(NOT HOLDFAST_PRECOMPILE)
    return()
  endif()
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE -O0 -g1 -fPIC)
    target_link_libraries(${target} PRIVATE fmt::fmt)
    if(target STREQUAL holdfast_tensor)
      target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)
    else()
      target_precompile_headers(${target} REUSE_FROM holdfast_tensor)
    endif()
  endforeach()
endfunction()

# holdfast_test_program(name [SHARDS n] SOURCES file... [LIBRARIES target...]): the program <name>_tests.
#
# One process per test: a crash, a hang or a leak then is the failure of one test with a name, and ctest counts what we
# want counted. The price is the start of a process for each test: 3 ms.
#
# With libtorch the price is 0.7 s; with a sanitizer 45 ms, and 80 of the 360 seconds of processor time that those tests took.
# Such a program has SHARDS: ctest starts it n times, and each time it runs its share of the tests, and writes down which, for
# `./test` to count. `./test --filter` switches that off (HOLDFAST_TEST_SHARDS), to find tests by name.
function(holdfast_test_program name)
  cmake_parse_arguments(ARG "" "SHARDS" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name}_tests ${ARG_SOURCES})
  target_compile_options(${name}_tests PRIVATE ${HOLDFAST_TEST_FLAGS})
  target_link_libraries(${name}_tests PRIVATE ${ARG_LIBRARIES} fmt::fmt GTest::gtest GTest::gtest_main)
  if(ARG_SHARDS)
    holdfast_precompile(${name}_tests)
  endif()
  if(HOLDFAST_SANITIZE)
    set(ARG_SHARDS 12)
  endif()
  if(NOT ARG_SHARDS OR NOT HOLDFAST_TEST_SHARDS)
    gtest_discover_tests(${name}_tests TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 240 LABELS ${name})
    return()
  endif()
  foreach(number RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${number} - 1")
    add_test(NAME ${name}.shard_${number}_of_${ARG_SHARDS} COMMAND ${name}_tests)
    set_tests_properties(${name}.shard_${number}_of_${ARG_SHARDS} PROPERTIES TIMEOUT 600 LABELS ${name}
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index};GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/shards/${name}_${number}.xml")
  endforeach()
endfunction()

# holdfast_layer(name [ONE_THREAD] [SHARDS n] [DEPENDS layer...] [LIBRARIES target...])
# The library holdfast_<name> (holdfast::<name> to others) and, where there are *_test.cc files, the program
# <name>_tests. SHARDS are for that (see above). LIBRARIES are public: they reach whoever links the layer.
# ONE_THREAD: its tests have no other, so ThreadSanitizer has nothing to look for in them.
function(holdfast_layer name)
  cmake_parse_arguments(ARG "ONE_THREAD" "SHARDS" "DEPENDS;LIBRARIES" ${ARGN})
  holdfast_glob(layer src/holdfast/${name})
  list(TRANSFORM ARG_DEPENDS PREPEND holdfast_)
  if(layer_sources)
    add_library(holdfast_${name} STATIC ${layer_sources})
    set(scope PUBLIC)
    target_link_libraries(holdfast_${name} PRIVATE fmt::fmt)
  else()
    # Headers only, or nothing yet. It still passes on what it depends on.
    message(STATUS "holdfast: layer ${name} has no sources yet")
    add_library(holdfast_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(holdfast::${name} ALIAS holdfast_${name})
  target_compile_features(holdfast_${name} ${scope} cxx_std_20)
  target_include_directories(holdfast_${name} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(holdfast_${name} ${scope} Threads::Threads ${ARG_DEPENDS} ${ARG_LIBRARIES})
  holdfast_install_library(${name} HEADERS src/holdfast/${name})
  if(HOLDFAST_BUILD_TESTS AND layer_tests AND NOT (ARG_ONE_THREAD AND HOLDFAST_SANITIZE STREQUAL "thread"))
    holdfast_test_program(${name} SHARDS ${ARG_SHARDS} SOURCES ${layer_tests} LIBRARIES holdfast_${name})
  endif()
endfunction()

# holdfast_canary_tests(name LAYERS layer...)
# The program <name>_canary_tests, from src/holdfast/<name>/canary: it contains the code of the layers compiled with
# their deliberate defects (base/canary.h), in place of their libraries. What the program defines itself is not taken
# from a library; and only .cc files may ask for a canary, so that all agree on what the headers say.
function(holdfast_canary_tests name)
  cmake_parse_arguments(ARG "" "" "LAYERS" ${ARGN})
  holdfast_glob(canary src/holdfast/${name}/canary)
  set(sources ${canary_tests})
  foreach(layer ${ARG_LAYERS})
    holdfast_glob(layer src/holdfast/${layer})
    list(APPEND sources ${layer_sources})
  endforeach()
  holdfast_test_program(${name}_canary SOURCES ${sources} LIBRARIES holdfast_${name})
  target_compile_definitions(${name}_canary_tests PRIVATE HOLDFAST_CANARIES)
  # They search for minutes, which takes longer than to compile them well.
  target_compile_options(${name}_canary_tests PRIVATE -O1)
  # These sources are compiled once more: several at a time takes half as long (see CMakePresets.json: dev).
  set_target_properties(${name}_canary_tests PROPERTIES UNITY_BUILD ON)
endfunction()

# holdfast_command(program LAYER folder [DEPENDS layer...] [LIBRARIES target...])
# A layer that is a program. Everything but main.cc goes into a library, so that its tests can link it.
# Its tests find the program beside themselves, in bin/.
function(holdfast_command program)
  cmake_parse_arguments(ARG "" "LAYER" "DEPENDS;LIBRARIES" ${ARGN})
  holdfast_glob(tool src/holdfast/${ARG_LAYER})
  set(main ${PROJECT_SOURCE_DIR}/src/holdfast/${ARG_LAYER}/main.cc)
  if(NOT main IN_LIST tool_sources)
    message(STATUS "holdfast: no src/holdfast/${ARG_LAYER}/main.cc yet, so no ${program} command")
    return()
  endif()
  list(REMOVE_ITEM tool_sources ${main})
  list(TRANSFORM ARG_DEPENDS PREPEND holdfast_)
  set(libraries ${ARG_DEPENDS} ${ARG_LIBRARIES} fmt::fmt)
  if(tool_sources)
    add_library(holdfast_${ARG_LAYER} STATIC ${tool_sources})
    target_link_libraries(holdfast_${ARG_LAYER} PUBLIC ${libraries})
    target_compile_options(holdfast_${ARG_LAYER} PRIVATE ${HOLDFAST_TEST_FLAGS})  # what computes is in the layers
    set(libraries holdfast_${ARG_LAYER})
  endif()
  add_executable(${program} ${main})
  target_link_libraries(${program} PRIVATE ${libraries})
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(HOLDFAST_BUILD_TESTS AND tool_tests)
    holdfast_test_program(${ARG_LAYER} SOURCES ${tool_tests} LIBRARIES ${libraries})
    add_dependencies(${ARG_LAYER}_tests ${program})
  endif()
endfunction()

# holdfast_programs(folder LIBRARIES target...): every .cc file of the folder becomes a program of the same name; the
# target holdfast_<folder> builds them all.
function(holdfast_programs folder)
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cc)
  string(REPLACE / _ all holdfast_${folder})
  add_custom_target(${all})
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES})
    target_compile_options(${name} PRIVATE ${HOLDFAST_TEST_FLAGS})  # where there are tests, it is there to be tested
    if(holdfast::torch IN_LIST ARG_LIBRARIES)
      holdfast_precompile(${name})
    endif()
    add_dependencies(${all} ${name})
  endforeach()
endfunction()

# holdfast_program(name FOLDERS folder... LIBRARIES target...): all .cc files of the folders become one program.
function(holdfast_program name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;LIBRARIES" ${ARGN})
  list(TRANSFORM ARG_FOLDERS REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/\\1/*.cc" OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(NOT sources)
    message(STATUS "holdfast: no sources for ${name} yet")
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} fmt::fmt)
  if(holdfast::torch IN_LIST ARG_LIBRARIES)
    holdfast_precompile(${name})
  endif()
endfunction()
