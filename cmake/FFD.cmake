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
if(FFD_STATIC_LLVM)
  # Tools that run where LLVM is not installed. MLIR's CMake targets are of no use
  # here, all of them name the shared library: list the archives, of which the
  # linker takes only what is referenced.
  file(GLOB FFD_MLIR_ARCHIVES ${LLVM_LIBRARY_DIR}/libMLIR*.a)
  execute_process(
    COMMAND ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static --libs
      nvptx x86 passes orcjit core support irreader targetparser
    OUTPUT_VARIABLE FFD_LLVM_ARCHIVES OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(FFD_LLVM_ARCHIVES)
  target_link_directories(ffd-mlir INTERFACE ${LLVM_LIBRARY_DIR})
  target_link_libraries(ffd-mlir INTERFACE
    -Wl,--start-group ${FFD_MLIR_ARCHIVES} ${FFD_LLVM_ARCHIVES} -Wl,--end-group
    z zstd m pthread dl -Wl,--gc-sections -Wl,--icf=all -s)
else()
  target_link_libraries(ffd-mlir INTERFACE MLIR LLVM)
endif()

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
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tools)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} ffd-mlir)
  install(TARGETS ${name})
endfunction()
