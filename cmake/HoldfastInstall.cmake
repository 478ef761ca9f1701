# What `cmake --install` puts where, so that find_package(holdfast) gives another project holdfast::holdfast.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# holdfast_install_library(name [HEADERS folder]): the target holdfast_<name>, known to others as holdfast::<name>.
function(holdfast_install_library name)
  cmake_parse_arguments(ARG "" "HEADERS" "" ${ARGN})
  set_target_properties(holdfast_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS holdfast_${name} EXPORT holdfast-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  if(ARG_HEADERS AND IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${ARG_HEADERS})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${ARG_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/holdfast
            FILES_MATCHING PATTERN "*.h" PATTERN "*_test*.h" EXCLUDE)
  endif()
endfunction()

function(holdfast_install_package)
  # The headers that stand for several layers: holdfast.h and, with libtorch, torch.h.
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/holdfast/*.h)
  if(NOT HOLDFAST_WITH_TORCH)
    list(FILTER headers EXCLUDE REGEX "/torch\\.h$")
  endif()
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/holdfast)

  set(destination ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)
  install(EXPORT holdfast-targets NAMESPACE holdfast:: DESTINATION ${destination})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/holdfast-config.cmake.in
                                ${PROJECT_BINARY_DIR}/holdfast-config.cmake INSTALL_DESTINATION ${destination})
  # Before 1.0 a minor version may change the interface.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/holdfast-config-version.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/holdfast-config.cmake ${PROJECT_BINARY_DIR}/holdfast-config-version.cmake
          DESTINATION ${destination})
endfunction()
