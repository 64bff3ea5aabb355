# Helpers of the build: compiler flags as LLVM wants them, one precompiled
# header for all MLIR code, and library definitions in one line.

# Interface target with the flags and include paths of everything that uses MLIR.
add_library(ffd-mlir INTERFACE)
target_include_directories(ffd-mlir INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
  ${PROJECT_SOURCE_DIR}/runtime/include)
target_include_directories(ffd-mlir SYSTEM INTERFACE
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
separate_arguments(FFD_LLVM_DEFINITIONS NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_definitions(ffd-mlir INTERFACE ${FFD_LLVM_DEFINITIONS})
target_compile_options(ffd-mlir INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti;-fno-exceptions;-Wall;-Wextra;-Wno-unused-parameter>)
target_link_libraries(ffd-mlir INTERFACE MLIR LLVM)

# ffd_add_library(NAME sources... [DEPENDS targets...] [LINK libs...])
# A static library of compiler code with the shared precompiled header.
function(ffd_add_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC ffd-mlir ${ARG_LINK})
  if(TARGET ffd-pch)
    target_precompile_headers(${name} REUSE_FROM ffd-pch)
    add_dependencies(${name} ffd-pch)
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# ffd_add_tool(NAME sources... [LINK libs...])
function(ffd_add_tool name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} ffd-mlir)
  install(TARGETS ${name})
endfunction()
