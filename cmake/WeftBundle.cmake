# Bundles as a build step.
#
#   include(WeftBundle)
#   weft_add_bundle(TARGET OUTPUT FILE.weft
#                   {SET FILE.yaml | MODELS FILE.onnx...}
#                   [OPTIONS OPTION...])      further options of `weft compile`
#
# TARGET is built by default and carries the absolute path of the bundle in its property
# WEFT_BUNDLE. The compiler writes a depfile, so a bundle is rebuilt when its set file, any model or
# any file of external weights changes. WEFT_EXECUTABLE names the program; the default is the target
# `weft` of the same build, else what PATH has.
include_guard(GLOBAL)

function(weft_add_bundle target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT;SET" "MODELS;OPTIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "weft_add_bundle: what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  if(NOT arg_OUTPUT)
    message(FATAL_ERROR "weft_add_bundle: no OUTPUT")
  endif()
  if((arg_SET AND arg_MODELS) OR NOT (arg_SET OR arg_MODELS))
    message(FATAL_ERROR "weft_add_bundle: either SET or MODELS")
  endif()
  set(program) # what `weft compile` executes, where this build makes it
  if(WEFT_EXECUTABLE)
    set(weft ${WEFT_EXECUTABLE})
  elseif(TARGET weft)
    set(weft weft)
    set(program weft-compiler)
  else()
    find_program(WEFT_EXECUTABLE weft REQUIRED)
    set(weft ${WEFT_EXECUTABLE})
  endif()

  set(inputs)
  foreach(input ${arg_SET} ${arg_MODELS})
    cmake_path(ABSOLUTE_PATH input BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    list(APPEND inputs ${input})
  endforeach()
  set(output ${arg_OUTPUT})
  cmake_path(ABSOLUTE_PATH output BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} NORMALIZE)
  add_custom_command(OUTPUT ${output}
    COMMAND ${weft} compile ${inputs} -o ${output} --depfile ${output}.d ${arg_OPTIONS}
    DEPENDS ${inputs} ${weft} ${program} DEPFILE ${output}.d
    COMMENT "Compiling bundle ${arg_OUTPUT}" VERBATIM)
  add_custom_target(${target} ALL DEPENDS ${output})
  set_target_properties(${target} PROPERTIES WEFT_BUNDLE ${output})
endfunction()
