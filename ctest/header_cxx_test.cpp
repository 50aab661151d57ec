// The headers alone and twice in C++17, as the very first thing.
// clang-format off
#include "kvpath.hpp"
#include "kvpath.hpp"
// clang-format on

#include "kvpath.h"

#include <cstddef>

#include "check.h"

// The layout that C++ sees is the one that C sees.
#define SIZE(name, bytes) static_assert(sizeof(name) == (bytes), "size of " #name);
#define OFFSET(name, field, bytes)                                                                 \
    static_assert(offsetof(name, field) == (bytes), "offset of " #name "." #field);
#include "layout.def"

static_assert(noexcept(kvpath_open(nullptr, nullptr)), "functions do not throw");
static_assert(noexcept(kvpath_close(0)), "functions do not throw");
static_assert(KVPATH_OK - KVPATH_ERROR == 1, "negative numbers work in expressions");

CASE(cxx17) { CHECK(kvpath_version()[0] != '\0'); }
