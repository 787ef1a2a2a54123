#!/bin/sh
# Installs gpuperf from this folder, and starts the service if systemd runs. Running it again upgrades.
#
# usage: ./install.sh [--prefix DIR] [--no-start] [--uninstall | --purge]
#   --prefix DIR   where the programs go (default: /usr/local)
#   --no-start     do not enable, start or restart the service
#   --uninstall    remove what was installed; keeps the configuration, slow calls and captures
#   --purge        remove these too, and the user and groups
#
# As root also: /etc/gpuperf/config.json, unless there is one, and /etc/systemd/system/gpuperfd.service. As another user only the
# files below the prefix: enough for gpuperfctl, its demo, and the injected library.
set -eu
umask 022 # the service's user reads what root installs

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local action=install start=yes
case $here in */share/gpuperf) prefix=${here%/share/gpuperf} ;; esac # the installed copy of this script
while [ $# -gt 0 ]; do
  case $1 in
    --prefix)
      [ $# -ge 2 ] || fail "--prefix needs a folder"
      prefix=${2%/}
      shift
      ;;
    --no-start) start=no ;;
    --uninstall) action=uninstall ;;
    --purge) action=purge ;;
    *)
      sed -n '4,11s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
  esac
  shift
done
case $prefix in
  /*) ;;
  *) fail "--prefix needs an absolute path, not '$prefix'" ;;
esac

unit=/etc/systemd/system/gpuperfd.service
# One line per installed file.
list=$prefix/share/gpuperf/installed_files
is_root() { [ "$(id -u)" = 0 ]; }
has_systemd() { is_root && [ -d /run/systemd/system ]; }

# place FILE TARGET: whole or not at all; programs that have the old file mapped keep it.
place() {
  [ -d "${2%/*}" ] || mkdir -p "${2%/*}"
  cp "$1" "$2.new"
  mv -f "$2.new" "$2"
  echo "$2" >>"$list.new"
}

# remove_files: those in standard input, and folders of ours that become empty.
remove_files() {
  while read -r file; do
    rm -f "$file"
    folder=${file%/*}
    while [ "$folder" != "$prefix" ]; do
      case $folder in
        "$prefix"/*/gpuperf | "$prefix"/*/gpuperf/*) rmdir "$folder" 2>/dev/null || break ;;
        *) break ;;
      esac
      folder=${folder%/*}
    done
  done
}

if [ $action != install ]; then
  [ -f "$list" ] || fail "gpuperf is not installed in $prefix. Name the folder with --prefix"
  if has_systemd && [ -f $unit ]; then systemctl disable --now --quiet gpuperfd.service || true; fi
  cp "$list" "$list.old"
  remove_files <"$list.old"
  printf '%s\n' "$list" "$list.old" | remove_files
  if has_systemd; then systemctl daemon-reload; fi
  if [ $action = purge ] && is_root; then
    rm -rf /etc/gpuperf /var/lib/gpuperf /run/gpuperf
    if command -v userdel >/dev/null; then
      userdel gpuperfd 2>/dev/null || true
      for group in gpuperfd gpuperf; do groupdel $group 2>/dev/null || true; done
    fi
    echo "gpuperf is removed from $prefix, with its configuration and data"
  elif is_root; then
    echo "gpuperf is removed from $prefix; /etc/gpuperf and /var/lib/gpuperf are kept"
  else
    echo "gpuperf is removed from $prefix"
  fi
  exit 0
fi

[ -f "$here/bin/gpuperfctl" ] || fail "$here is not an unpacked release. Run install.sh in the folder that the tarball unpacks to"
"$here/bin/gpuperfctl" --version >/dev/null ||
  fail "gpuperfctl does not run here (above): it needs Linux on x86-64 with glibc 2.36 or later"
if is_root; then
  for path in /usr/lib/systemd/system/gpuperfd.service /lib/systemd/system/gpuperfd.service; do
    [ ! -e $path ] || fail "the package gpuperfd is installed ($path). Remove it first: apt remove gpuperfd gpuperfctl"
  done
  case $prefix/ in
    /home/* | /root/* | /tmp/*) fail "the service cannot see $prefix (its unit hides home folders and /tmp). Choose another --prefix" ;;
  esac
fi

upgrade=no
if [ -f "$list" ]; then upgrade=yes; fi
mkdir -p "$prefix/share/gpuperf" 2>/dev/null || fail "cannot write to $prefix. Run this as root, or choose another folder with --prefix"
: >"$list.new" || fail "cannot write to $prefix/share/gpuperf. Run this as root, or choose another folder with --prefix"
(cd "$here" && find bin sbin lib share -type f ! -path 'lib/systemd/*' ! -path 'lib/sysusers.d/*' ! -path 'lib/tmpfiles.d/*') |
  while read -r file; do place "$here/$file" "$prefix/$file"; done
place "$here/install.sh" "$prefix/share/gpuperf/install.sh"
place "$here/etc/gpuperf/config.json" "$prefix/share/gpuperf/config.json"

if is_root; then
  if [ -e /etc/gpuperf/config.json ]; then
    echo "/etc/gpuperf/config.json is kept; the shipped one is $prefix/share/gpuperf/config.json"
  else
    mkdir -p /etc/gpuperf
    cp "$here/etc/gpuperf/config.json" /etc/gpuperf/config.json
  fi
  if command -v systemctl >/dev/null && command -v systemd-sysusers >/dev/null; then
    sed "s,/usr/sbin/gpuperfd,$prefix/sbin/gpuperfd,g" "$here/lib/systemd/system/gpuperfd.service" >"$list.unit"
    place "$list.unit" $unit
    rm -f "$list.unit"
    place "$here/lib/sysusers.d/gpuperf.conf" /etc/sysusers.d/gpuperf.conf
    place "$here/lib/tmpfiles.d/gpuperf.conf" /etc/tmpfiles.d/gpuperf.conf
    systemd-sysusers gpuperf.conf
  fi
fi

# Files of the version before that this one does not have.
if [ $upgrade = yes ]; then grep -vxFf "$list.new" "$list" | remove_files; fi
mv -f "$list.new" "$list"

"$prefix/bin/gpuperfctl" --version
if ! is_root; then
  echo "Installed in $prefix. The service needs root. To look around: $prefix/bin/gpuperfctl demo"
elif ! has_systemd; then
  echo "Installed in $prefix. systemd does not run here: start $prefix/sbin/gpuperfd yourself"
elif [ $start = no ]; then
  systemctl daemon-reload
  echo "Installed in $prefix. To start it: systemctl enable --now gpuperfd"
else
  systemctl daemon-reload
  systemd-tmpfiles --create gpuperf.conf
  # What an administrator disabled stays so.
  if [ $upgrade = no ]; then systemctl enable --quiet gpuperfd.service; fi
  if systemctl is-enabled --quiet gpuperfd.service; then
    systemctl restart gpuperfd.service || fail "installed in $prefix, but gpuperfd did not start. See: systemctl status gpuperfd"
  fi
  echo "Installed in $prefix. gpuperfd is $(systemctl is-active gpuperfd.service || true). Next: gpuperfctl status"
fi
