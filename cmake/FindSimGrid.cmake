# Debian ships simgrid.pc and no CMake package.
find_package(PkgConfig REQUIRED)
pkg_check_modules(SIMGRID QUIET simgrid)
find_path(SimGrid_INCLUDE_DIR simgrid/s4u.hpp HINTS ${SIMGRID_INCLUDE_DIRS})
find_library(SimGrid_LIBRARY simgrid HINTS ${SIMGRID_LIBRARY_DIRS})
set(SimGrid_VERSION "${SIMGRID_VERSION}")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SimGrid REQUIRED_VARS SimGrid_LIBRARY SimGrid_INCLUDE_DIR
                                  VERSION_VAR SimGrid_VERSION)
if(SimGrid_FOUND AND NOT TARGET SimGrid::simgrid)
  add_library(SimGrid::simgrid UNKNOWN IMPORTED)
  set_target_properties(SimGrid::simgrid PROPERTIES IMPORTED_LOCATION "${SimGrid_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${SimGrid_INCLUDE_DIR}")
endif()
