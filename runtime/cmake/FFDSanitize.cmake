# FFD_SANITIZE: sanitizers for the runtime, its tests and ffd-run, as -fsanitize=
# takes them. `scripts/check-sanitizers` builds with both useful sets.
set(FFD_SANITIZE "" CACHE STRING
  "Sanitizers to build with: address,undefined or thread; empty: none")
if(FFD_SANITIZE)
  if(FFD_ENABLE_COMPILER)
    # LLVM's packages are built without: allocators in its headers would poison
    # memory that the code of its libraries does not know to be poisoned.
    message(FATAL_ERROR "FFD_SANITIZE is '${FFD_SANITIZE}' with "
      "FFD_ENABLE_COMPILER on, expected it off: the compiler's LLVM and MLIR are "
      "not instrumented")
  endif()
  if(NOT FFD_SANITIZE MATCHES "^(address|undefined|address,undefined|thread)$")
    message(FATAL_ERROR "FFD_SANITIZE is '${FFD_SANITIZE}', expected address, "
      "undefined, address,undefined or thread")
  endif()
  set(FFD_SANITIZE_FLAGS -fsanitize=${FFD_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g1)
  # Not part of undefined, and what a bad size or scale would do first.
  if(FFD_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND FFD_SANITIZE_FLAGS -fsanitize=float-cast-overflow,local-bounds)
  endif()
  add_compile_options(${FFD_SANITIZE_FLAGS})
  add_link_options(${FFD_SANITIZE_FLAGS})
endif()
