# `cmake --install`: the library under its soname, the headers, and what find_package(kvpath) and
# pkg-config need. Everything is relative to its own place, so the tree may be moved.
include(CMakePackageConfigHelpers)

set(kvpath_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvpath")
set(kvpath_file "libkvpath.so.${PROJECT_VERSION}")
set(kvpath_soname "libkvpath.so.${PROJECT_VERSION_MAJOR}")

install(PROGRAMS "${CMAKE_BINARY_DIR}/lib/${kvpath_file}"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime)
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
write_basic_package_version_file("${CMAKE_BINARY_DIR}/cmake/kvpathConfigVersion.cmake"
    COMPATIBILITY SameMajorVersion)
install(FILES "${CMAKE_BINARY_DIR}/cmake/kvpathConfig.cmake"
              "${CMAKE_BINARY_DIR}/cmake/kvpathConfigVersion.cmake"
        DESTINATION "${kvpath_cmake_dir}" COMPONENT development)

file(RELATIVE_PATH kvpath_pc_to_prefix
     "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/kvpath.pc.in "${CMAKE_BINARY_DIR}/cmake/kvpath.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/cmake/kvpath.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
