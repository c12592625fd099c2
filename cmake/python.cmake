# The Python module `parsim` (python/), where PARSIM_PYTHON asks for it and the machine has pybind11
# and Python's headers. Included before all targets: what goes into a shared library is compiled as
# position-independent code, and the programs are made from the same objects.
set(parsim_python FALSE)
if(NOT PARSIM_HW_ONLY AND NOT PARSIM_PYTHON STREQUAL "OFF")
  find_package(Python 3.9 QUIET COMPONENTS Interpreter Development.Module)
  if(Python_FOUND)
    find_package(pybind11 2.10 QUIET)
  endif()
  if(Python_FOUND AND pybind11_FOUND)
    set(parsim_python TRUE)
  elseif(PARSIM_PYTHON STREQUAL "ON")
    message(FATAL_ERROR "PARSIM_PYTHON=ON: not all is there: Python ${Python_VERSION} with headers "
                        "(python3-dev), pybind11 ${pybind11_VERSION} (pybind11-dev)")
  endif()
endif()
message(STATUS "Python module: ${parsim_python}")
if(parsim_python OR PARSIM_LIBRARY)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # else no exported function would be inlined; as in clang
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  endif()
endif()

# The package lies ready to import in the build folder (PYTHONPATH=build/release/python).
function(parsim_python_module)
  if(NOT parsim_python)
    return()
  endif()
  set(package "${CMAKE_BINARY_DIR}/python/parsim")
  file(GLOB module_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/*.cpp")
  pybind11_add_module(parsim_python MODULE EXCLUDE_FROM_ALL NO_EXTRAS ${module_sources})
  target_include_directories(parsim_python PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(parsim_python PRIVATE app warnings fmt::fmt)
  target_compile_options(parsim_python PRIVATE -Wno-shadow)
  # What it exports is its initializer: another module may hold another version of a library.
  target_link_options(parsim_python PRIVATE LINKER:--exclude-libs,ALL)
  set_target_properties(parsim_python PROPERTIES OUTPUT_NAME _parsim
                        LIBRARY_OUTPUT_DIRECTORY "${package}")
  file(GLOB package_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/parsim/*")
  add_custom_command(TARGET parsim_python POST_BUILD
    COMMAND "${CMAKE_COMMAND}" -E copy ${package_files} "${package}" VERBATIM)
  file(WRITE "${CMAKE_BINARY_DIR}/python/interpreter" "${Python_EXECUTABLE}\n")
  install(TARGETS parsim_python LIBRARY DESTINATION parsim COMPONENT python EXCLUDE_FROM_ALL)
  install(FILES ${package_files} DESTINATION parsim COMPONENT python EXCLUDE_FROM_ALL)
endfunction()
