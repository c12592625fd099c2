# hw/ and the program parsim-hw, with the CUDA engine where HW_CUDA asks for it and the machine has all
# of it: nvcc 12.4 or newer, cuDNN 9, cuBLASLt, NCCL, from a toolkit or from Python's nvidia packages.
set(hw_cuda FALSE)
if(NOT HW_CUDA STREQUAL "OFF")
  if(NOT HW_PIP_NVIDIA_DIR)
    execute_process(COMMAND python3 -c "import nvidia; print(list(nvidia.__path__)[0])"
                    OUTPUT_VARIABLE HW_PIP_NVIDIA_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_package(CUDAToolkit 12.4 QUIET)
  find_package(CUDNN 9 QUIET)
  find_package(NCCL 2.18 QUIET)
  find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${HW_PIP_NVIDIA_DIR}/cu13/lib
                     ${HW_PIP_NVIDIA_DIR}/cublas/lib)
  if(CUDAToolkit_FOUND AND CUDNN_FOUND AND NCCL_FOUND AND CUBLASLT_LIBRARY)
    set(hw_cuda TRUE)
  elseif(HW_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HW_CUDA=ON: not all is there: CUDA toolkit ${CUDAToolkit_VERSION}, "
                        "cuDNN ${CUDNN_VERSION}, NCCL ${NCCL_VERSION}, cuBLASLt ${CUBLASLT_LIBRARY}")
  endif()
endif()
message(STATUS "CUDA engine: ${hw_cuda}")

# The CPU engine, where HW_ONEDNN allows it and the machine has oneDNN 2 and OpenMP.
set(hw_cpu FALSE)
if(NOT HW_ONEDNN STREQUAL "OFF")
  find_package(OpenMP QUIET COMPONENTS CXX)
  find_package(dnnl 2 QUIET)  # its version file accepts no other major version
  if(OpenMP_CXX_FOUND AND dnnl_FOUND AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(hw_cpu TRUE)  # Debian's oneDNN uses GCC's OpenMP
  elseif(HW_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "HW_ONEDNN=ON: not all is there: oneDNN 2 (libdnnl-dev) ${dnnl_VERSION}, "
                        "OpenMP ${OpenMP_CXX_VERSION} of g++")
  endif()
endif()
message(STATUS "CPU engine, by oneDNN: ${hw_cpu}")

find_package(Threads REQUIRED)
set(MPI_CXX_SKIP_MPICXX TRUE)
find_package(MPI QUIET COMPONENTS CXX)
set(hw_mpi FALSE)
if(MPI_CXX_FOUND)
  set(hw_mpi TRUE)
endif()
message(STATUS "several processes of parsim-hw, by MPI: ${hw_mpi}")
file(GLOB hw_sources CONFIGURE_DEPENDS hw/*.cpp)
list(REMOVE_ITEM hw_sources "${CMAKE_SOURCE_DIR}/hw/main.cpp" "${CMAKE_SOURCE_DIR}/hw/mpi.cpp")
# The tests' own build of hw/ has no CUDA.
set(hw_host_sources ${hw_sources})
if(hw_cuda)
  list(REMOVE_ITEM hw_sources "${CMAKE_SOURCE_DIR}/hw/no_cuda.cpp")
endif()
if(hw_cpu)
  list(REMOVE_ITEM hw_sources "${CMAKE_SOURCE_DIR}/hw/no_cpu.cpp")
endif()
parsim_library(hw SOURCES ${hw_sources} PUBLIC core PRIVATE Threads::Threads)
# By itself in the library: what is linked before may answer instead (tests/hw/emulated).
set_source_files_properties(hw/no_cuda.cpp hw/no_mpi.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

if(hw_cpu)
  file(GLOB cpu_sources CONFIGURE_DEPENDS hw/cpu/*.cpp)
  parsim_library(hw_cpu SOURCES ${cpu_sources} PUBLIC core PRIVATE OpenMP::OpenMP_CXX DNNL::dnnl)
  target_compile_options(hw_cpu PRIVATE $<$<CONFIG:Release>:-O3>)
  target_link_libraries(hw PUBLIC hw_cpu)
  target_link_libraries(hw_cpu PUBLIC hw)
endif()

if(hw_cuda)
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}" CACHE FILEPATH "nvcc")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Machine code for 7.5 to 9.0, and for 10.0 and 12.0 where nvcc knows them; others translate 9.0's
    # PTX.
    set(architectures "75-real;80-real;86-real;89-real;90")
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND architectures 100-real 120-real)
    endif()
    set(CMAKE_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "")
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  file(GLOB cuda_sources CONFIGURE_DEPENDS hw/cuda/*.cpp hw/cuda/*.cu)
  add_library(hw_cuda STATIC ${cuda_sources})
  target_include_directories(hw_cuda PUBLIC "${CMAKE_SOURCE_DIR}")
  target_compile_options(hw_cuda PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--threads=2>")
  target_link_libraries(hw_cuda PUBLIC core PRIVATE fmt::fmt CUDA::cudart CUDNN::cudnn NCCL::nccl
                        "${CUBLASLT_LIBRARY}")
  # libcuda is not linked: the program must start where there is no driver.
  target_link_libraries(hw PUBLIC hw_cuda)
  target_link_libraries(hw_cuda PUBLIC hw)
endif()

# A program parsim-hw, with MPI where it is: never in a library that meets SimGrid, which exports
# functions of the same names.
function(parsim_hw_program name)
  add_executable(${name} "${CMAKE_SOURCE_DIR}/hw/main.cpp")
  target_link_libraries(${name} PRIVATE ${ARGN} hw warnings fmt::fmt)
  if(hw_mpi)
    target_sources(${name} PRIVATE "${CMAKE_SOURCE_DIR}/hw/mpi.cpp")
    target_link_libraries(${name} PRIVATE MPI::MPI_CXX)
  endif()
endfunction()
parsim_hw_program(parsim-hw)

# Tests on a GPU are skipped where there is none, with the reason printed.
function(parsim_cuda_tests)
  if(NOT hw_cuda)
    return()
  endif()
  file(GLOB dags CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/hw/data/*.json")
  add_executable(hw_cuda_numbers "${CMAKE_SOURCE_DIR}/tests/hw/cuda/numbers.cpp")
  target_link_libraries(hw_cuda_numbers PRIVATE hw)
  add_test(NAME hw_cuda_numbers COMMAND hw_cuda_numbers ${dags})
  set_tests_properties(hw_cuda_numbers PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 LABELS hw)
  add_test(NAME hw_cuda_processes
    COMMAND "${CMAKE_SOURCE_DIR}/tests/hw/processes.sh" "$<TARGET_FILE:parsim-hw>" cuda ${dags})
  set_tests_properties(hw_cuda_processes PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 LABELS hw)
  if(NOT PARSIM_HW_ONLY)
    # The emulator's functions are declared as in the true headers, or this does not compile.
    file(GLOB emulator_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/hw/emulated/*.cpp")
    list(FILTER emulator_sources EXCLUDE REGEX "/(kernels|program)[.]cpp$")
    add_library(hw_emulated_declarations OBJECT ${emulator_sources})
    target_include_directories(hw_emulated_declarations PRIVATE "${CMAKE_SOURCE_DIR}")
    target_link_libraries(hw_emulated_declarations PRIVATE CUDA::cudart CUDNN::cudnn NCCL::nccl)
  endif()
  add_executable(hw_cuda_plans "${CMAKE_SOURCE_DIR}/tests/hw/cuda/plans.cpp")
  target_link_libraries(hw_cuda_plans PRIVATE hw)
  add_test(NAME hw_cuda_plans COMMAND hw_cuda_plans)
  set_tests_properties(hw_cuda_plans PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endfunction()
