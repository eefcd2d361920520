# MLIR and LLVM as shared libraries only: the static archives beside them would duplicate TypeIDs.
find_package(MLIR 19.1 REQUIRED CONFIG PATHS /usr/lib/llvm-19/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)
include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
add_definitions(${LLVM_DEFINITIONS})

# Under the sanitizers compiling takes longer than running, so nothing is optimised there.
set(SLUICE_COMPILER_LEVEL $<IF:$<BOOL:${SLUICE_SANITIZE}>,-O0,-O1>)

# A static library of the compiler side. MLIR headers are heavy, so all of them reuse the precompiled header of sluice_ir.
function(sluice_compiler_library name)
  add_library(${name} STATIC ${ARGN})
  target_compile_options(${name} PRIVATE ${SLUICE_COMPILER_LEVEL} -Wno-unused-parameter)
  if(SLUICE_PCH AND NOT name STREQUAL sluice_ir)
    target_precompile_headers(${name} REUSE_FROM sluice_ir)
  endif()
  if(NOT name STREQUAL sluice_ir)
    target_link_libraries(${name} PUBLIC sluice_ir)
  endif()
endfunction()

# A program or test of the compiler side. -fPIC after CMake's -fPIE: the precompiled header is compiled with it.
function(sluice_compiler_executable name)
  add_executable(${name} ${ARGN})
  target_compile_options(${name} PRIVATE ${SLUICE_COMPILER_LEVEL} -Wno-unused-parameter -fPIC)
  if(SLUICE_PCH)
    target_precompile_headers(${name} REUSE_FROM sluice_ir)
  endif()
endfunction()
