# libweft.so.1 and libweft.a: api/ with the part of runtime/ that it uses.
#
# The shared library exports what api/weft.map lists. The static one is one object file, linked from
# the same archives, in which all other names are local.
set(WEFT_ABI 1)
set(weft_map ${PROJECT_SOURCE_DIR}/api/weft.map)

add_library(libweft SHARED $<TARGET_OBJECTS:weft_api>)
set_target_properties(libweft PROPERTIES
  OUTPUT_NAME weft EXPORT_NAME runtime VERSION ${WEFT_ABI}.${PROJECT_VERSION} SOVERSION ${WEFT_ABI}
  LINK_DEPENDS ${weft_map})
target_include_directories(libweft INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(libweft PRIVATE weft_runtime)
target_link_options(libweft PRIVATE LINKER:--as-needed LINKER:--version-script=${weft_map}
                    LINKER:-Bsymbolic-functions)
add_library(Weft::runtime ALIAS libweft)

# The names that the version script exports.
file(STRINGS ${weft_map} weft_exports REGEX "^ +[A-Za-z_]+;")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${weft_map})
list(TRANSFORM weft_exports REPLACE "[ ;]" "")
set(weft_keep)
foreach(name ${weft_exports})
  list(APPEND weft_keep --keep-global-symbol=${name})
endforeach()
set(weft_archives)
foreach(name runtime ir ops bundle_proto base)
  list(APPEND weft_archives $<TARGET_FILE:weft_${name}>)
endforeach()
set(static ${PROJECT_BINARY_DIR}/libweft.a)
add_custom_command(OUTPUT ${static}
  COMMAND ${CMAKE_LINKER} -r -o libweft.o --whole-archive $<TARGET_FILE:weft_api>
          --no-whole-archive ${weft_archives}
  COMMAND ${CMAKE_OBJCOPY} ${weft_keep} libweft.o
  COMMAND ${CMAKE_COMMAND} -E rm -f ${static}
  COMMAND ${CMAKE_AR} qcsD ${static} libweft.o
  DEPENDS weft_api weft_runtime weft_ir weft_ops weft_bundle_proto weft_base ${weft_map}
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM)
add_custom_target(libweft_static ALL DEPENDS ${static})
