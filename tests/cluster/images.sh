#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the images of the test cluster with buildah and writes each as a tar that containerd can import:
#   base        debian:bookworm-slim from debootstrap (no registry is asked), and a build image with the Dockerfiles' packages
#   tools       pause, prometheus, iperf3: small, from scratch
#   product     weir-operator (< 28 MB, with kubectl-weir) and weir-worker (< 60 MB) by the project's own Dockerfiles
#   kueue       the manager of Kueue, from scratch
#   torch       an image as a team has it: Debian's Python with the wheel of weir-worker, by a Dockerfile like that of worker/python/README.md
#   gpu         weir-worker for GPUs by the same Dockerfile; not exported, only started: without a GPU it says so and ends
# usage: images.sh [base|tools|product|kueue|torch|gpu]...     prints the paths of the tars; nothing is built twice for the same sources
set -euo pipefail
# shellcheck source=env.sh
. "$(dirname "$0")/env.sh"
images=$cache/images
log=$images/build.log
max_operator=28000000 max_worker=60000000 max_gpu=850000000 # bytes; what the README promises

# an own storage, so that the user's images are left alone and our base does not shadow a pulled one
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
b() { buildah --root "$cache/containers" --runroot "$cache/containers-run" "$@"; }
have_image() { b inspect --type image "$1" >/dev/null 2>&1; }
step() { # WHAT command...: with its output in the log
  local what=$1 begin=$SECONDS; shift
  say "$what ..."
  "$@" >>"$log" 2>&1 || { tail -25 "$log" >&2; die "$what failed, see $log"; }
  say "$what: done in $((SECONDS - begin)) s"
}
export_image() { # NAME TAR
  rm -f "$2.part"
  b push -q "$1" "docker-archive:$2.part:$1" >>"$log" 2>&1 || { tail -5 "$log" >&2; die "export of $1 failed"; }
  mv "$2.part" "$2"
}
from_folder() { # FOLDER NAME TAR config...: image from scratch with these files
  local folder=$1 name=$2 tar=$3 container; shift 3
  container=$(b from scratch)
  b add -q "$container" "$folder" / >>"$log"
  b config "$@" "$container"
  b commit -q --rm "$container" "$name" >>"$log" 2>&1
  export_image "$name" "$tar"
  b rmi "$name" >/dev/null 2>&1 || true
}
with_libraries() { # PROGRAM FOLDER: copies it and what ldd lists
  mkdir -p "$2"
  cp "$1" "$2/"
  ldd "$1" | grep -oE '/[^ ]+' | while read -r library; do install -D -m755 "$(realpath "$library")" "$2$library"; done
}

pause_tar() {
  local tar=$images/pause-1.tar folder
  [ -f "$tar" ] || {
    folder=$(mktemp -d)
    step "image pause" gcc -Os -static -s -x c -o "$folder/pause" - <<'C'
#include <signal.h>
#include <unistd.h>
static void stop(int signal) { (void)signal; _exit(0); }
int main(void) { signal(SIGTERM, stop); signal(SIGINT, stop); for (;;) pause(); }
C
    from_folder "$folder" localhost/pause:1 "$tar" --entrypoint '["/pause"]' --user 65532
    rm -rf "$folder"
  }
  echo "$tar"
}
prometheus_tar() {
  local tar folder; tar=$images/prometheus-$(sha256sum "$here/go.sum" | cut -c1-12).tar
  [ -f "$tar" ] || {
    folder=$(mktemp -d); mkdir -p "$folder/tmp" "$folder/data"; chmod 1777 "$folder/tmp" "$folder/data"
    cp "$bin/prometheus" "$folder/"
    from_folder "$folder" localhost/prometheus:1 "$tar" --entrypoint '["/prometheus"]' --user 65534
    rm -rf "$folder"
  }
  echo "$tar@n1" # 70 MB: only the node that runs it
}
kueue_tar() {
  local tar folder; tar=$images/kueue-0.17.0.tar
  [ -f "$tar" ] || {
    folder=$(mktemp -d); mkdir -p "$folder/tmp"; chmod 1777 "$folder/tmp"
    cp "$bin/kueue" "$folder/manager"
    from_folder "$folder" localhost/kueue:1 "$tar" --entrypoint '["/manager"]' --user 65532
    rm -rf "$folder"
  }
  echo "$tar"
}
iperf3_tar() {
  local tar folder; tar=$images/iperf3-$(dpkg-query -W -f '${Version}' iperf3 | tr -c 'a-zA-Z0-9.\n' _).tar
  [ -f "$tar" ] || {
    folder=$(mktemp -d); mkdir -p "$folder/tmp"; chmod 1777 "$folder/tmp"
    with_libraries "$(command -v iperf3)" "$folder"
    with_libraries "$(command -v sleep)" "$folder"
    from_folder "$folder" localhost/iperf3:1 "$tar" --entrypoint '["/iperf3"]' --user 65534
    rm -rf "$folder"
  }
  echo "$tar"
}

debian_mirror() { apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | grep -v security | head -1; }
base_image() {
  have_image docker.io/library/debian:bookworm-slim && return
  local folder mirror container; folder=$cache/debian-bookworm
  mirror=$(debian_mirror); [ -n "$mirror" ] || mirror=http://deb.debian.org/debian
  rm -rf "$folder"
  step "base image debian:bookworm-slim by debootstrap" debootstrap --variant=minbase bookworm "$folder" "$mirror"
  rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/* "$folder"/usr/share/{doc,man,locale}/*
  container=$(b from scratch)
  b add -q "$container" "$folder" / >>"$log"
  b config --cmd /bin/bash "$container"
  b commit -q --rm "$container" docker.io/library/debian:bookworm-slim >>"$log" 2>&1
  rm -rf "$folder"
}
with_packages() { # NAME TITLE PACKAGES: the base with these packages, once
  have_image "$1" && return
  local container
  base_image
  container=$(b from --pull-never docker.io/library/debian:bookworm-slim)
  step "$2" b run "$container" -- sh -c "apt-get update && apt-get install -y --no-install-recommends $3 && rm -rf /var/lib/apt/lists/*"
  b commit -q --rm "$container" "$1" >>"$log" 2>&1
}
# The Dockerfiles install their packages on debian:bookworm-slim. So that this happens once here and not at each build, the
# same line is run on the base first and the result is given to them as BUILD_IMAGE.
build_image() { # prints the name of the image
  local packages name
  packages=$(sed -n 's/^ARG PACKAGES="\(.*\)"$/\1/p' "$root/operator/Dockerfile" "$root/worker/Dockerfile" | tr ' ' '\n' | sort -u | tr '\n' ' ')
  name=localhost/weir-build:$(echo "$packages" | sha256sum | cut -c1-12)
  with_packages "$name" "build image (compiler and libraries)" "$packages"
  echo "$name"
}
source_key() { # the files that reach the program
  (cd "$root" && find CMakeLists.txt CMakePresets.json "$@" -type f ! -name '*.md' -print0 | sort -z | xargs -0 sha256sum) | sha256sum | cut -c1-12
}
# of the last commit that reaches the programs: the same sources give the same image; "" outside of a repository
revision() { git -C "$root" log -1 --format=%h -- CMakeLists.txt CMakePresets.json operator worker 2>/dev/null || true; }
product_tar() { # PROGRAM FOLDER MAX-BYTES SOURCES...
  local program=$1 folder=$2 max=$3 tar size; shift 3
  tar=$images/$program-$(source_key "$@").tar
  [ -f "$tar" ] || {
    local build; build=$(build_image)
    step "image $program" b bud --pull-never --layers=false --build-arg "BUILD_IMAGE=$build" --build-arg PRESET=ci \
      --build-arg "REVISION=$(revision)" --volume "$objects:/root/.cache/ccache:rw" \
      -f "$root/$folder/Dockerfile" -t "localhost/$program:test" "$root"
    rm -f "$images/$program"-*.tar
    export_image "localhost/$program:test" "$tar"
  }
  size=$(stat -c %s "$tar")
  say "image $program: $((size / 1000000)) MB"
  [ "$size" -lt "$max" ] || die "image $program has $size bytes, the limit is $max"
  echo "$tar"
}

# torch itself is not in it: pods mount the environment of tests/setup torch, of the same Python
torch_tar() {
  local tar base=localhost/team-base:bookworm; tar=$images/team-$(source_key worker).tar
  [ -f "$tar" ] || {
    have_image localhost/weir-worker:test || rm -f "$images"/weir-worker-*.tar
    product_tar weir-worker worker $max_worker worker >/dev/null
    with_packages "$base" "image with Debian's Python" "python3 python3-pip"
    step "image of a team with weir-torch" b bud --pull-never --layers=false -t localhost/team:test -f - "$root" <<DOCKERFILE
FROM localhost/weir-worker:test AS weir
FROM $base
COPY --from=weir /wheels /tmp/wheels
RUN pip install --no-cache-dir --break-system-packages /tmp/wheels/weir_torch-*.whl
USER 65532:65532
DOCKERFILE
    rm -f "$images"/team-*.tar
    export_image localhost/team:test "$tar"
  }
  echo "$tar"
}

# CUDA is that of tests/setup, so that nothing is fetched again
gpu_image() {
  local build cuda name=localhost/weir-worker-cuda:test container out size code=0
  build=$(build_image)
  cuda=$("$root/tests/setup" cuda | tail -n 1)
  step "image weir-worker for GPUs" b bud --pull-never --layers=false --build-arg "BUILD_IMAGE=$build" --build-arg DEVICE=cuda \
    --volume "$objects:/root/.cache/ccache:rw" --volume "$cuda:/opt/cuda:ro" -f "$root/worker/Dockerfile" -t "$name" "$root"
  container=$(b from --pull-never "$name")
  size=$(du -sb "$(b mount "$container")" | cut -f1)
  [ -e "$(b mount "$container")/usr/lib/x86_64-linux-gnu/libibverbs.so.1" ] && compgen -G "$(b mount "$container")/etc/libibverbs.d/mlx5.driver" >/dev/null \
    || die "the image for GPUs has no libraries of RDMA"
  out=$(b run "$container" -- /weir-worker --log-format=text 2>&1 | grep -vE '^(subprocess exited|Error: exit status)'; exit "${PIPESTATUS[0]}") || code=$?
  b rm "$container" >/dev/null; b rmi "$name" >/dev/null
  say "image weir-worker for GPUs: $((size / 1000000)) MB; exit code $code: $out"
  [ "$size" -lt "$max_gpu" ] || die "the image for GPUs has $size bytes, the limit is $max_gpu"
  [ -e /dev/nvidia0 ] || { [ "$code" -eq 2 ] && grep -q 'no CUDA device' <<<"$out" && [ "$(wc -l <<<"$out")" -eq 1 ]; } \
    || die "without a GPU the worker ended with $code and said: $out"
  echo "PASS gpu image"
}

wanted=("$@"); [ $# -gt 0 ] || wanted=(tools product)
for group in "${wanted[@]}"; do
  case $group in -h | --help) usage; exit 0 ;; base | tools | product | kueue | torch | gpu) ;; *) usage; exit 2 ;; esac
done
need_root
"$here/setup.sh" >/dev/null
objects=$(ccache --get-config cache_dir) # of this machine's builds: nothing is compiled twice
mkdir -p "$images" "$objects"
exec 9>"$images/.lock"
flock -w 1800 9 || die "another images.sh has been running for 30 min"
for group in "${wanted[@]}"; do
  case $group in
    base) build_image >/dev/null ;;
    tools) pause_tar; prometheus_tar; iperf3_tar ;;
    kueue) kueue_tar ;;
    torch) torch_tar ;;
    gpu) gpu_image ;;
    product)
      product_tar weir-operator operator $max_operator operator worker
      product_tar weir-worker worker $max_worker worker ;;
  esac
done
