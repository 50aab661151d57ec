# The program in the README is examples/minimal.c, byte for byte: what is shown is what is tested.
# Usage: cmake -DREADME=… -DPROGRAM=… -P readme_test.cmake
file(READ "${README}" readme)
file(READ "${PROGRAM}" program)
string(FIND "${readme}" "```c\n${program}```\n" place)
if(place EQUAL -1)
    message(FATAL_ERROR "${README} does not show ${PROGRAM} as it is")
endif()
