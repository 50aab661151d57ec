# Builds and tests kvpath from nothing but Debian, and makes an image with the library alone:
#   docker build -t kvpath .
# Tests that mount file systems skip in a build; with the rights they need they run in the first stage:
#   docker build --target build -t kvpath-build .
#   docker run --rm --privileged kvpath-build make test
FROM debian:bookworm-slim AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PATH=/root/.cargo/bin:$PATH

# What building and testing need, by the project's own script; before the sources, so that a change
# there does not install everything again.
WORKDIR /kvpath
COPY scripts/setup.sh scripts/
COPY Cargo.toml ./
RUN scripts/setup.sh && rm -rf /var/lib/apt/lists/*

COPY . .
# make itself came with the line above.
RUN make test JOBS="$(nproc)"
RUN cmake --install build --prefix /usr/local && cpack --config build/CPackConfig.cmake -B packages

# The library alone, as a program's image would have it.
FROM debian:bookworm-slim
COPY --from=build /kvpath/packages/libkvpath0.1_*.deb /tmp/
RUN dpkg -i /tmp/libkvpath0.1_*.deb && rm /tmp/libkvpath0.1_*.deb
