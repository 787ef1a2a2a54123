#!/bin/sh
# Places libgpuperf_injector.so into a folder of the host, from where containers of workloads take it.
#
# usage: place_injector FOLDER
#
# Programs that run have the library mapped: a file there is never written to again. Each version is a
# file of its own, named by its content, and the link libgpuperf_injector.so is moved to it by a rename;
# who opens it meanwhile gets the old or the new one, whole.
set -eu

fail() {
  echo "place_injector: $*" >&2
  exit 1
}

[ $# -eq 1 ] || fail "usage: place_injector FOLDER"
folder=$1
library=${GPUPERF_INJECTOR:-/usr/lib/gpuperf/libgpuperf_injector.so}

[ -s "$library" ] || fail "$library: not there: this image was built without the injected library"
[ -d "$folder" ] || fail "$folder: no such folder: mount a folder of the host there"
# The loader maps code from there; Debian and Ubuntu mount /run noexec.
case ",$(findmnt --noheadings --output OPTIONS --target "$folder")," in
  *,noexec,*) fail "$folder: mounted noexec, so no program could load a library from it:" \
    "choose a folder on another file system (hostPaths.injector in the chart)" ;;
esac

sum=$(sha256sum "$library")
name=libgpuperf_injector-$(printf %.12s "$sum").so
temporary=$folder/.$name.$$
trap 'rm -f "$temporary" "$temporary.link"' EXIT

if ! cmp -s "$library" "$folder/$name"; then
  cp "$library" "$temporary"
  chmod 0755 "$temporary"
  sync "$temporary"
  mv -fT "$temporary" "$folder/$name"
fi
ln -s "$name" "$temporary.link"
mv -fT "$temporary.link" "$folder/libgpuperf_injector.so"
echo "place_injector: $folder/libgpuperf_injector.so is $name"
