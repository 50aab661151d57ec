# `cpack`: Debian packages, one per component: libkvpath0.1 (the library), libkvpath-dev (headers,
# CMake package, pkg-config file), libkvpath0.1-dbgsym (what debuggers read), and with KVPATH_UCM_DIR
# kvpath-ucm (the plug-in).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvpath)
set(CPACK_PACKAGE_VENDOR kvpath)
set(CPACK_PACKAGE_CONTACT "kvpath developers <kvpath@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON) # the plug-in; the library is stripped already

set(CPACK_COMPONENTS_ALL runtime development debug)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)

set(runtime "libkvpath${kvpath_soversion}") # the soname's number is in the name: both fit
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${runtime})
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
    "${PROJECT_DESCRIPTION}\nThe shared library that programs and pipelines load.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libkvpath-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${runtime} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "${PROJECT_DESCRIPTION}\nHeaders for C and C++, the CMake package and the pkg-config file.")

set(CPACK_DEBIAN_DEBUG_PACKAGE_NAME "${runtime}-dbgsym")
set(CPACK_DEBIAN_DEBUG_PACKAGE_SECTION debug)
set(CPACK_DEBIAN_DEBUG_PACKAGE_DEPENDS "${runtime} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEBUG_DESCRIPTION
    "${PROJECT_DESCRIPTION}\nLine tables and symbols of the library, for debuggers and backtraces.")

if(KVPATH_UCM_DIR)
    list(APPEND CPACK_COMPONENTS_ALL ucm)
    set(CPACK_DEBIAN_UCM_PACKAGE_NAME kvpath-ucm)
    set(CPACK_DEBIAN_UCM_PACKAGE_DEPENDS "${runtime} (= ${PROJECT_VERSION})")
    set(CPACK_COMPONENT_UCM_DESCRIPTION
        "${PROJECT_DESCRIPTION}\nThe plug-in in the place of the UCM pipeline's Posix store.")
endif()

# The libraries that ours needs, with versions, and for programs that link to it the package to depend
# on. CPack asks dpkg-dev, and `file`, which a small Debian lacks, for both.
find_program(KVPATH_SHLIBDEPS dpkg-shlibdeps)
find_program(KVPATH_FILE file)
mark_as_advanced(KVPATH_SHLIBDEPS KVPATH_FILE)
if(KVPATH_SHLIBDEPS AND KVPATH_FILE)
    set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
    set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
    set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=") # one soname is one ABI that only grows
else()
    set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6, libgcc-s1")
endif()
include(CPack)
