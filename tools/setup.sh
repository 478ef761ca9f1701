# shellcheck shell=bash
# What ./quickstart, ./test and ./bench share: getting the packages, configuring, building.
# Sourced, not run.

set -euo pipefail

# Each preset has its own folder below this one.
# shellcheck disable=SC2154  # root: set by the script that sources this file
build_root="$root/build"

# shellcheck disable=SC2034  # used by the scripts that source this file
packages_build=(g++ cmake ninja-build libfmt-dev libssl-dev libcli11-dev libtorch-dev)
# shellcheck disable=SC2034
packages_test=(libgtest-dev libmsgpack-cxx-dev python3 iproute2 valgrind)
# shellcheck disable=SC2034
packages_python=(python3-dev python3-venv python3-torch python3-numpy pybind11-dev)
# shellcheck disable=SC2034
packages_peers=(pkg-config libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libcapnp-dev capnproto ucx-utils
  python3-torch python3-numpy)
# shellcheck disable=SC2034
packages_sanitizers=(clang libclang-rt-dev libgtest-dev)

trap 'echo; echo "Interrupted."; exit 130' INT
trap 'exit 143' TERM

say() { printf '\n== %s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

# Installs those of the named Debian packages that are missing. Asks dpkg first, so a second run needs
# neither the network nor rights.
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is not Debian or Ubuntu: if the build fails, install what these packages hold: $*"
    return
  fi
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then return; fi

  local become=()
  if [[ $(id -u) != 0 ]]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      become=(sudo -n)
    else
      echo "Some packages are missing, and installing them needs root. Run this, then try again:" >&2
      fail "  sudo apt-get install -y ${missing[*]}"
    fi
  fi
  say "Installing packages: ${missing[*]}"
  local install=("${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
  # The package lists may be missing or old; they are fetched only then, since that takes a while.
  if ! "${install[@]}" "${missing[@]}" >/dev/null 2>&1; then
    "${become[@]}" apt-get update || fail "apt-get update failed: is there a network?"
    "${install[@]}" "${missing[@]}" || fail "Could not install: ${missing[*]}"
  fi
}

jobs_max() { echo "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"; }

# What cmake is told besides the preset. A script may set it before it calls build.
configure_options=()

# build PRESET [TARGET...]: configures when needed and builds. The result says whether it worked.
build() {
  local preset=$1 log
  shift
  say "Building ($preset)"
  # Quiet unless it fails: what cmake finds on the way interests nobody.
  if ! log=$(cd "$root" && cmake --preset "$preset" "${configure_options[@]}" 2>&1); then
    printf '%s\n' "$log" >&2
    return 1
  fi
  # On a terminal ninja keeps its progress in one line; what a compiler prints always comes through.
  NINJA_STATUS='[%f/%t] ' ninja -C "$build_root/$preset" -j "$(jobs_max)" "$@"
}
