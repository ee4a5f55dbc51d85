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

# -- Installation: component runtime is the library, development what programs are built with -----
if(NOT WEFT_INSTALL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(weft_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Weft)
install(TARGETS libweft EXPORT WeftRuntime
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
        NAMELINK_COMPONENT development)
install(FILES ${static} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES include/weft/weft.h include/weft/weft.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft COMPONENT development)
install(EXPORT WeftRuntime NAMESPACE Weft:: DESTINATION ${weft_cmake_dir} COMPONENT development)
# The command is found from the folder of the package, so that the whole tree can be moved.
configure_package_config_file(cmake/WeftConfig.cmake.in ${PROJECT_BINARY_DIR}/gen/WeftConfig.cmake
  INSTALL_DESTINATION ${weft_cmake_dir} PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gen/WeftConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gen/WeftConfig.cmake
              ${PROJECT_BINARY_DIR}/gen/WeftConfigVersion.cmake cmake/WeftBundle.cmake
        DESTINATION ${weft_cmake_dir} COMPONENT development)
file(RELATIVE_PATH weft_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/weft.pc.in ${PROJECT_BINARY_DIR}/gen/weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gen/weft.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
