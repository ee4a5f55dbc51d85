# oneDNN 2.6 or 3.x as the target weft_onednn, and WEFT_ONEDNN_MAJOR: which version it is.
#
# WEFT_ONEDNN_ROOT names a prefix with include/ and lib/; empty, the system's library is taken.
set(WEFT_ONEDNN_ROOT "" CACHE PATH "Prefix of oneDNN; empty: the system's")

if(WEFT_ONEDNN_ROOT)
  set(where PATHS ${WEFT_ONEDNN_ROOT} NO_DEFAULT_PATH)
endif()
# Found anew by every configuration, so that another WEFT_ONEDNN_ROOT takes effect.
find_library(onednn_library dnnl PATH_SUFFIXES lib lib64 ${where} NO_CACHE REQUIRED)
find_path(onednn_include oneapi/dnnl/dnnl_version.h PATH_SUFFIXES include ${where} NO_CACHE REQUIRED)
unset(where)

file(STRINGS ${onednn_include}/oneapi/dnnl/dnnl_version.h lines REGEX "DNNL_VERSION_(MAJOR|MINOR|PATCH)")
foreach(part MAJOR MINOR PATCH)
  string(REGEX MATCH "DNNL_VERSION_${part} +([0-9]+)" line "${lines}")
  set(onednn_${part} ${CMAKE_MATCH_1})
endforeach()
set(WEFT_ONEDNN_MAJOR ${onednn_MAJOR})
if(NOT WEFT_ONEDNN_MAJOR MATCHES "^[23]$")
  message(FATAL_ERROR "oneDNN ${WEFT_ONEDNN_MAJOR} in ${onednn_include}: 2.6 or 3.x is needed")
endif()
message(STATUS "oneDNN ${onednn_MAJOR}.${onednn_MINOR}.${onednn_PATCH}: ${onednn_library}")

add_library(weft_onednn INTERFACE)
target_link_libraries(weft_onednn INTERFACE ${onednn_library})
target_include_directories(weft_onednn SYSTEM INTERFACE ${onednn_include})
