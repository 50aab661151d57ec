# `cmake --install`: the library under its soname, the headers, and what find_package(kvpath) and
# pkg-config need. Everything is relative to its own place, so the tree may be moved.
#
# The build tree keeps the library with its line tables and symbols. What is installed is stripped to
# a sixth of that; the rest goes to a file of its own, which debuggers and Rust's backtraces find in
# `.debug` beside the library, with `cmake --install BUILD --component debug`.
include(CMakePackageConfigHelpers)

set(kvpath_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvpath")
set(kvpath_file "libkvpath.so.${PROJECT_VERSION}")
set(kvpath_soname "libkvpath.so.${kvpath_soversion}")
set(kvpath_dist "${CMAKE_BINARY_DIR}/dist")

set(kvpath_split "${CMAKE_CURRENT_LIST_DIR}/KvpathSplit.cmake")
# With the library, not as a target of its own: whatever was built last can be installed.
add_custom_command(TARGET kvpath_cargo POST_BUILD
    COMMAND "${CMAKE_COMMAND}" "-DLIBRARY=${CMAKE_BINARY_DIR}/lib/${kvpath_file}"
            "-DDIST=${kvpath_dist}" "-DOBJCOPY=${CMAKE_OBJCOPY}" "-DSTRIP=${CMAKE_STRIP}"
            -P "${kvpath_split}"
    BYPRODUCTS "${kvpath_dist}/${kvpath_file}" "${kvpath_dist}/${kvpath_file}.debug"
    COMMENT "" VERBATIM)

install(PROGRAMS "${kvpath_dist}/${kvpath_file}"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime)
install(FILES "${kvpath_dist}/${kvpath_file}.debug"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/.debug" COMPONENT debug EXCLUDE_FROM_ALL)
install(FILES "${CMAKE_BINARY_DIR}/lib/${kvpath_soname}"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime)
install(FILES "${CMAKE_BINARY_DIR}/lib/libkvpath.so"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(FILES include/kvpath.h include/kvpath.hpp
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development)
install(FILES include/kvpath/ucm_store_v1.hpp
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpath" COMPONENT development)

configure_package_config_file(cmake/kvpathConfig.cmake.in
    "${CMAKE_BINARY_DIR}/cmake/kvpathConfig.cmake"
    INSTALL_DESTINATION "${kvpath_cmake_dir}"
    PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
set(kvpath_compatible SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(kvpath_compatible SameMinorVersion)
endif()
write_basic_package_version_file("${CMAKE_BINARY_DIR}/cmake/kvpathConfigVersion.cmake"
    COMPATIBILITY ${kvpath_compatible})
install(FILES "${CMAKE_BINARY_DIR}/cmake/kvpathConfig.cmake"
              "${CMAKE_BINARY_DIR}/cmake/kvpathConfigVersion.cmake"
        DESTINATION "${kvpath_cmake_dir}" COMPONENT development)

file(RELATIVE_PATH kvpath_pc_to_prefix
     "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/kvpath.pc.in "${CMAKE_BINARY_DIR}/cmake/kvpath.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/cmake/kvpath.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
