# What `cmake --install` installs, and `cpack` packs: the programs, the manual page, bash's completion,
# and, with PARSIM_LIBRARY, libparsim.so with headers and a CMake package (find_package(parsim)).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Folders whose headers another program may use: up to where a request becomes results.
set(parsim_folders core networks topologies lowering sim strategies experiment)

# All of these folders in one library; its dependencies are its own, except what headers include.
function(parsim_shared_library)
  set(archives core_graph ${parsim_folders})
  set(nothing "${CMAKE_BINARY_DIR}/nothing.cpp")  # CMake wants a source
  file(CONFIGURE OUTPUT "${nothing}" CONTENT "")
  add_library(parsim_shared SHARED "${nothing}")
  add_library(parsim::parsim ALIAS parsim_shared)
  list(TRANSFORM archives PREPEND "$<TARGET_FILE:")
  list(TRANSFORM archives APPEND ">")
  list(JOIN archives " " archives)
  target_link_options(parsim_shared PRIVATE
                      "SHELL:-Wl,--whole-archive ${archives} -Wl,--no-whole-archive")
  target_link_libraries(parsim_shared PRIVATE experiment
                        PUBLIC fmt::fmt nlohmann_json::nlohmann_json)
  target_compile_features(parsim_shared PUBLIC cxx_std_20)
  target_include_directories(parsim_shared INTERFACE
    "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/parsim>")
  set_target_properties(parsim_shared PROPERTIES OUTPUT_NAME parsim EXPORT_NAME parsim
    LINKER_LANGUAGE CXX VERSION "${PROJECT_VERSION}"
    SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  install(TARGETS parsim_shared EXPORT parsim LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(DIRECTORY ${parsim_folders} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/parsim"
          FILES_MATCHING PATTERN "*.hpp")
  set(package "${CMAKE_INSTALL_LIBDIR}/cmake/parsim")
  install(EXPORT parsim NAMESPACE parsim:: DESTINATION "${package}" FILE parsimTargets.cmake)
  file(WRITE "${CMAKE_BINARY_DIR}/parsimConfig.cmake" "include(CMakeFindDependencyMacro)
find_dependency(fmt)
find_dependency(nlohmann_json)
include(\"\${CMAKE_CURRENT_LIST_DIR}/parsimTargets.cmake\")
")
  write_basic_package_version_file("${CMAKE_BINARY_DIR}/parsimConfigVersion.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${CMAKE_BINARY_DIR}/parsimConfig.cmake"
                "${CMAKE_BINARY_DIR}/parsimConfigVersion.cmake" DESTINATION "${package}")
endfunction()

# Who builds a package answers for it: as Debian's tools find out who that is, by $DEBFULLNAME and
# $DEBEMAIL, or as git knows it; else the authors of CITATION.cff, without an address.
function(parsim_maintainer result)
  set(name "$ENV{DEBFULLNAME}")
  set(address "$ENV{DEBEMAIL}")
  if(name STREQUAL "" OR address STREQUAL "")
    foreach(key name email)
      execute_process(COMMAND git config "user.${key}" WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
                      OUTPUT_VARIABLE ${key} OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endforeach()
    set(address "${email}")
  endif()
  if(name STREQUAL "" OR address STREQUAL "")
    file(STRINGS "${CMAKE_SOURCE_DIR}/CITATION.cff" name REGEX "^  - name: ")
    string(REGEX REPLACE "^  - name: \"(.*)\"$" "\\1" name "${name}")
    set(${result} "${name}" PARENT_SCOPE)
  else()
    set(${result} "${name} <${address}>" PARENT_SCOPE)
  endif()
endfunction()

function(parsim_install)
  if(PARSIM_LIBRARY)
    parsim_shared_library()
  endif()
  install(TARGETS parsim parsim-hw RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  # Both are written by the program from its tables.
  set(manual "${CMAKE_BINARY_DIR}/share/parsim.1")
  set(completion "${CMAKE_BINARY_DIR}/share/parsim")
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/share")
  add_custom_command(OUTPUT "${manual}" "${completion}"
    COMMAND "${CMAKE_SOURCE_DIR}/cmake/manual.sh" "$<TARGET_FILE:parsim>" > "${manual}"
    COMMAND parsim completion bash > "${completion}"
    DEPENDS parsim "${CMAKE_SOURCE_DIR}/cmake/manual.sh" VERBATIM)
  add_custom_target(parsim_manual ALL DEPENDS "${manual}" "${completion}")
  install(FILES "${manual}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${completion}" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES README.md LICENSE CHANGELOG.md CITATION.cff DESTINATION "${CMAKE_INSTALL_DOCDIR}")

  set(CPACK_GENERATOR DEB)
  parsim_maintainer(maintainer)
  set(PARSIM_MAINTAINER "${maintainer}" CACHE STRING "Who maintains the .deb: NAME <ADDRESS>")
  set(CPACK_PACKAGE_CONTACT "${PARSIM_MAINTAINER}")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
      "how to train a neural network on a cluster of GPUs, and how long a step takes")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  # Loaded where it is there; the fast engine needs none.
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libsimgrid${SimGrid_VERSION}")
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libfmt-dev, nlohmann-json3-dev")
  include(CPack)
endfunction()
