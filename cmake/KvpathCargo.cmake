# kvpath_cargo_library(NAME [FEATURES f...]): cargo builds the shared library on every build (cargo
# knows best what is stale), it is staged as lib/libNAME.so.X.Y.Z with its links, and the imported
# target kvpath::NAME stands for it.
find_program(KVPATH_CARGO cargo HINTS "$ENV{HOME}/.cargo/bin" REQUIRED
             DOC "cargo, which builds the library")

function(kvpath_cargo_library name)
    cmake_parse_arguments(arg "" "" "FEATURES" ${ARGN})
    set(target_dir "${KVPATH_CARGO_TARGET_DIR}")
    set(cargo_arguments build --release --locked --lib)
    if(arg_FEATURES)
        # A directory of its own: the two builds must not undo each other.
        string(APPEND target_dir "/${name}")
        list(JOIN arg_FEATURES "," features)
        list(APPEND cargo_arguments --features "${features}")
    endif()
    list(APPEND cargo_arguments --target-dir "${target_dir}")

    set(built "${target_dir}/release/libkvpath.so")
    set(stage "${CMAKE_BINARY_DIR}/lib")
    set(versioned "lib${name}.so.${PROJECT_VERSION}")
    set(soname "lib${name}.so.${kvpath_soversion}")
    file(MAKE_DIRECTORY "${stage}")
    # Unset: a make that called cmake must not make cargo think that it shares its job server.
    add_custom_target(${name}_cargo ALL
        COMMAND "${CMAKE_COMMAND}" -E env --unset=MAKEFLAGS --unset=MFLAGS
                --unset=CARGO_MAKEFLAGS "${KVPATH_CARGO}" ${cargo_arguments}
        COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${built}" "${stage}/${versioned}"
        COMMAND "${CMAKE_COMMAND}" -E create_symlink "${versioned}" "${stage}/${soname}"
        COMMAND "${CMAKE_COMMAND}" -E create_symlink "${soname}" "${stage}/lib${name}.so"
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        BYPRODUCTS "${stage}/${versioned}"
        COMMENT "cargo builds lib${name}.so"
        USES_TERMINAL VERBATIM)

    add_library(kvpath::${name} SHARED IMPORTED GLOBAL)
    set_target_properties(kvpath::${name} PROPERTIES
        IMPORTED_LOCATION "${stage}/${versioned}"
        IMPORTED_SONAME "${soname}"
        INTERFACE_INCLUDE_DIRECTORIES "${PROJECT_SOURCE_DIR}/include")
    add_dependencies(kvpath::${name} ${name}_cargo)
endfunction()
