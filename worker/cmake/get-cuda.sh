#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds a CUDA 13.0 compile-and-link tree from PyPI wheels. No GPU, no driver, no root needed.
#
#   get-cuda.sh PREFIX        then: export CUDACXX=PREFIX/bin/nvcc   (or -DCMAKE_CUDA_COMPILER=...)
#
# PREFIX gets the layout of an ordinary toolkit: bin/ include/ lib/ lib64 -> lib nvvm/ licenses/.
# Running it again does nothing when PREFIX already holds these versions.
# SLIM=1 swaps the big run-time libraries (cuBLAS, NCCL) for link-only stubs: about a fifth of the
# disk, same link result, but the real libraries must be on the machine that runs the program.
# PYTHON names the interpreter whose pip is used (default python3).
set -euo pipefail

# CUDA 13.0 Update 2, as the PyPI package cuda-toolkit==13.0.2 pins it. cuBLAS has its own numbers.
PACKAGES=(
  nvidia-cuda-nvcc==13.0.88          # nvcc, ptxas, fatbinary, nvlink, cudafe++
  nvidia-cuda-crt==13.0.88           # include/crt
  nvidia-nvvm==13.0.88               # cicc and libdevice
  nvidia-cuda-runtime==13.0.96       # cuda.h, cuda_runtime.h, libcudart (shared and static), libcudadevrt
  nvidia-cuda-cccl==13.0.85          # <nv/target> (cuda_fp16.h needs it), cuda::std, CUB, Thrust
  nvidia-cuda-profiler-api==13.0.85  # cuda_profiler_api.h
  nvidia-cublas==13.1.0.3            # cuBLAS and cuBLASLt
  nvidia-nccl-cu13==2.28.9           # NCCL
)

[ $# -eq 1 ] && [ -n "$1" ] || { echo "usage: $0 PREFIX" >&2; exit 2; }
slim=${SLIM:-0}
python=${PYTHON:-python3}
mkdir -p -- "$(dirname -- "$1")"
prefix=$(cd -- "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
stamp=$(printf '%s\n' "layout 1" "slim $slim" "${PACKAGES[@]}")

if [ -f "$prefix/.get-cuda" ]; then
  if [ "$(cat -- "$prefix/.get-cuda")" = "$stamp" ] && "$prefix/bin/nvcc" --version >/dev/null 2>&1; then
    echo "up to date: $prefix"
    exit 0
  fi
elif [ -d "$prefix" ] && [ -n "$(ls -A -- "$prefix")" ]; then
  echo "$0: $prefix is not empty and was not made by this script" >&2
  exit 1
fi

tmp=$(mktemp -d -- "$prefix.new.XXXXXX")   # beside the prefix, so that the last step is a rename
trap 'rm -rf -- "$tmp"' EXIT
chmod 755 "$tmp"

# TMPDIR: pip unpacks a gigabyte, which a small temporary folder may not hold.
TMPDIR=$tmp "$python" -m pip install --quiet --root-user-action=ignore --disable-pip-version-check \
  --no-cache-dir --no-compile --no-deps --only-binary=:all: --target "$tmp/wheels" "${PACKAGES[@]}"

root=$tmp/root
mv -- "$tmp/wheels/nvidia/cu13" "$root"
cp -a -- "$tmp/wheels/nvidia/nccl/include/." "$root/include/"
mv -- "$tmp/wheels/nvidia/nccl/lib/"libnccl.so.* "$root/lib/"
mkdir -p -- "$root/licenses"
for d in "$tmp/wheels/"*.dist-info; do
  find "$d" -iname 'license*' -type f -exec cp -- {} "$root/licenses/$(basename "$d" .dist-info).txt" \;
done
rm -rf -- "$root/.metadata"
rm -f -- "$root/lib/"libnvblas.so.* "$root/lib/"libnvvm.so.*   # libnvvm serves only nvcc -dlto

# Link-only stub: same soname, same symbol names and versions; any call of it traps.
make_stub() {
  local lib=$1 work=$tmp/stub soname
  rm -rf -- "$work"
  mkdir -- "$work"
  soname=$(readelf -dW "$lib" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
  # One line "name version" for each function; the version is empty where the library has none.
  LC_ALL=C nm -D --defined-only --with-symbol-versions "$lib" | awk '
    $2 ~ /^[TWi]$/ { n = $3; v = ""; p = index(n, "@")
                     if (p) { v = substr(n, p); sub(/^@+/, "", v); n = substr(n, 1, p - 1) }
                     if (!seen[n]++) print n, v }' >"$work/syms"
  [ -s "$work/syms" ] || { echo "$0: no symbols in $lib" >&2; exit 1; }
  awk '{ print "void " $1 "(void) { __builtin_trap(); }" }' "$work/syms" >"$work/stub.c"
  awk '$2 != "" { s[$2] = s[$2] " " $1 ";" } END { for (v in s) print v " { global:" s[v] " };" }' \
    "$work/syms" >"$work/map"
  local opts=(-shared -fPIC -w -fno-builtin -nostdlib "-Wl,-soname,$soname")
  [ ! -s "$work/map" ] || opts+=("-Wl,--version-script=$work/map")
  "${CC:-gcc}" "${opts[@]}" -o "$work/out.so" "$work/stub.c"
  mv -- "$work/out.so" "$lib"
}
if [ "$slim" = 1 ]; then
  for lib in "$root/lib/"lib{cublas,cublasLt,nccl}.so.*; do make_stub "$lib"; done
fi

# What the wheels lack: the lib64 name that nvcc.profile searches, and the .so names that -lNAME needs.
ln -s lib "$root/lib64"
for lib in "$root/lib/"lib*.so.*; do
  ln -s "$(basename "$lib")" "${lib%%.so.*}.so"
done

# The tree must compile for both architectures and link everything before it takes the prefix's place.
cat >"$tmp/t.cu" <<'EOF'
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <nccl.h>
__global__ void k(float* p) { p[threadIdx.x] += 1.0f; }
int main() {
  int v = 0;
  ncclResult_t r = ncclGetVersion(&v);
  return int(r) + int(cublasLtGetVersion() == 0);
}
EOF
"$root/bin/nvcc" -std=c++17 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
  "$tmp/t.cu" -o "$tmp/t" -lcublasLt -lcublas -lnccl

printf '%s\n' "$stamp" >"$root/.get-cuda"
rm -rf -- "$prefix"
mv -T -- "$root" "$prefix"
echo "ready: $prefix ($(du -sm -- "$prefix" | cut -f1) MB), nvcc $("$prefix/bin/nvcc" --version | sed -n 's/.*, V//p')"
