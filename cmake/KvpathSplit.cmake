# cmake -DLIBRARY=… -DDIST=… -DOBJCOPY=… -DSTRIP=… -P KvpathSplit.cmake: makes of the built library what
# is shipped, DIST/NAME, with what runs and what is linked to alone, and DIST/NAME.debug with the
# line tables and symbols, by whose name and checksum (.gnu_debuglink) debuggers find it.
get_filename_component(name "${LIBRARY}" NAME)
set(shipped "${DIST}/${name}")
# It is made last.
if(NOT "${LIBRARY}" IS_NEWER_THAN "${shipped}"
   AND NOT "${CMAKE_CURRENT_LIST_FILE}" IS_NEWER_THAN "${shipped}")
    return()
endif()
if(NOT OBJCOPY OR NOT STRIP)
    message(FATAL_ERROR "objcopy and strip are needed to make what is installed (Debian: binutils)")
endif()

function(run)
    execute_process(COMMAND ${ARGV} WORKING_DIRECTORY "${DIST}" RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "${ARGV}: ${result}")
    endif()
endfunction()

file(MAKE_DIRECTORY "${DIST}")
file(REMOVE "${shipped}" "${shipped}.debug")
run("${OBJCOPY}" --only-keep-debug "${LIBRARY}" "${name}.debug")
run("${STRIP}" --strip-unneeded -o "${name}.new" "${LIBRARY}")
run("${OBJCOPY}" "--add-gnu-debuglink=${name}.debug" "${name}.new")
file(RENAME "${shipped}.new" "${shipped}")
