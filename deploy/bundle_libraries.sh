#!/usr/bin/env bash
# Makes programs run on hosts that lack the shared libraries they were linked with: copies these, stripped, into a folder,
# and sets each program's RPATH to that folder, relative to the program. glibc stays the host's.
#
# usage: deploy/bundle_libraries.sh LIBRARY_FOLDER PROGRAM...
#
# Prints a line "NAME PATH" for each library: its name in the folder, and the file it was copied from. The programs must be
# stripped before: strip does not keep what patchelf writes. They can be moved together with the folder.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# Part of every Linux host, and tied to its kernel and loader: never copied.
readonly HOST_LIBRARIES='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl)\.so'

fail() {
  echo "bundle_libraries: $*" >&2
  exit 1
}

command -v patchelf >/dev/null || fail "patchelf is not installed. Run: deploy/install_packages.sh release"
folder=$1
shift
mkdir -p "$folder"
unset LD_LIBRARY_PATH

# "libname.so.1 => /path/libname.so.1 (0x...)" for each library that the programs load.
libraries=$(ldd "$@" | awk '$2 == "=>" {print $1, $3}' | sort -u)
while read -r name path; do
  if [[ $name =~ $HOST_LIBRARIES ]]; then continue; fi
  [[ $path != not ]] || fail "$name, which a program needs, is not on this machine"
  strip --strip-unneeded -o "$folder/$name" "$path"
  chmod 0644 "$folder/$name"
  echo "$name $path"
done <<<"$libraries"

# RPATH, not RUNPATH: it also applies to what the libraries load in turn.
for program; do
  relative=$(realpath --relative-to="$(dirname "$program")" "$folder")
  patchelf --force-rpath --set-rpath "\$ORIGIN/$relative" "$program"
done
