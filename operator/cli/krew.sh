#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the archive of kubectl-weir and its manifest for krew, kubectl's plugin manager, for linux/amd64.
# usage: krew.sh PROGRAM FOLDER URL HOMEPAGE
#   PROGRAM   kubectl-weir, linked statically: that of the image, which is stripped, or of a build folder
#   FOLDER    gets weir.yaml and kubectl-weir-VERSION-linux-amd64.tar.gz
#   URL       of the folder from which users will download the archive
#   HOMEPAGE  of the project
# Then:  kubectl krew install --manifest=FOLDER/weir.yaml    (before the upload: also --archive=FOLDER/kubectl-weir-...tar.gz)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
usage() { sed -n '3,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; }
die() { echo "krew.sh: $*" >&2; exit 2; }
[ $# -eq 4 ] || { usage >&2; exit 2; }
program=$1 folder=$2 url=${3%/} homepage=$4
if [ ! -f "$program" ] || [ ! -x "$program" ]; then die "$program: no program; build the target kubectl-weir"; fi
for address in "$url" "$homepage"; do
  [[ $address =~ ^https://[^[:space:]\"\\]+$ ]] || die "$address: expected https://..."
done
version=$(sed -n 's/^project(weir VERSION \([0-9.]*\) .*/\1/p' "$root/CMakeLists.txt")
[ -n "$version" ] || die "CMakeLists.txt names no version"

archive=kubectl-weir-$version-linux-amd64.tar.gz
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
mkdir -p "$folder"
install -m 755 "$program" "$staging/kubectl-weir"
install -m 644 "$root/LICENSE" "$staging/LICENSE"
# the same program gives the same archive, and so the same checksum
tar -C "$staging" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - LICENSE kubectl-weir | gzip -n9 >"$folder/$archive"
sum=$(sha256sum "$folder/$archive")

cat >"$folder/weir.yaml" <<MANIFEST
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: weir
spec:
  version: "v$version"
  homepage: "$homepage"
  shortDescription: "Shows and steers pipeline-training jobs of Weir"
  description: |
    Why a job is slow, what would help, where a step goes; jobs and ranks; the
    plan, what each change of it promised and brought; logs by rank;
    checkpoints; traces of steps for ui.perfetto.dev. It asks only the API
    server, with the rights of the roles view and edit, and needs the
    PipelineJob CRD of Weir in the cluster.
  platforms:
  - selector:
      matchLabels:
        os: linux
        arch: amd64
    uri: "$url/$archive"
    sha256: "${sum%% *}"
    bin: kubectl-weir
    files:
    - from: kubectl-weir
      to: .
    - from: LICENSE
      to: .
MANIFEST
echo "$folder/weir.yaml"
