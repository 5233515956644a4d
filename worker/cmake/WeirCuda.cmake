# SPDX-License-Identifier: Apache-2.0
# The CUDA language, toolkit and NCCL for WEIR_CUDA=ON. Without an nvcc on this machine the compiler and the libraries come
# from PyPI into a cache (tests/setup cuda); no GPU is needed to compile and link. Include before any room.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(WEIR_NVCC nvcc HINTS /usr/local/cuda/bin)
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND NOT WEIR_NVCC)
  message(STATUS "no nvcc on this machine: tests/setup cuda fetches CUDA from PyPI into a cache (0.7 GB, once)")
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tests/setup cuda OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "tests/setup cuda failed; name an nvcc with -DCMAKE_CUDA_COMPILER=, or configure with WEIR_CUDA=OFF")
  endif()
  string(REGEX REPLACE ".*\n" "" prefix "${prefix}")
  message(STATUS "CUDA compiler: ${prefix}/bin/nvcc")
  set(WEIR_NVCC ${prefix}/bin/nvcc CACHE FILEPATH "the CUDA compiler" FORCE)
endif()
if(WEIR_NVCC AND NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${WEIR_NVCC})
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)  # A100, L4 (runs sm_80 code), H100; never "native": machines that build have no GPU
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)  # Debian's CMake 3.25 knows no CUDA20 for nvcc
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(CMAKE_VERSION VERSION_LESS 3.25.2 AND NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)  # find_package(CUDAToolkit) of 3.25.1 sets a property of it, found or not
endif()
find_package(CUDAToolkit 13.0 REQUIRED)
find_package(NCCL 2.28 REQUIRED)
