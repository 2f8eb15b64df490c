#!/bin/sh
# make_venv.sh REQUIREMENTS: makes .venv in the current folder, with the
# packages of that file, if it is not there and complete already.
#
# An installation that was interrupted is started again from nothing: the file
# `installing` in .venv is removed only at the end, after a copy of the
# requirements was left that the next call compares.
set -eu

requirements=$1
python=.venv/bin/python
installing=.venv/installing
# requirements-dev.txt holds `-r requirements.txt`, so both can change it.
wanted=$(cat requirements.txt "$requirements")
installed=.venv/installed-$requirements

fail() {
  echo "error: $1" >&2
  exit 1
}

# Runs it, because a name on the PATH may be a shim for nothing.
is_supported() {
  "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 12))' \
    >/dev/null 2>&1
}

has_venv() {
  "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

find_python() {
  without_venv=
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.11 python3.10
  do
    if is_supported "$candidate"; then
      if has_venv "$candidate"; then
        found=$candidate
        return
      fi
      without_venv=$candidate
    fi
  done
  if [ -n "$without_venv" ]; then
    fail "$without_venv has no venv module: install it (on Debian and Ubuntu: \
apt-get install python3-venv) and run the same command again."
  fi
  fail "No Python 3.10 or 3.11 found, which TensorFlow 2.15 needs: install \
one of them, or name it: make PYTHON=/path/to/python3.11 ..."
}

if [ -x $python ] && [ ! -e $installing ]; then
  is_supported $python || fail ".venv holds another Python than 3.10 or 3.11, \
or a broken one: remove the folder (make clean) and run the same command again."
  if [ -e "$installed" ] && [ "$(cat "$installed")" = "$wanted" ]; then
    exit 0
  fi
  : >$installing
else
  find_python
  rm -rf .venv
  mkdir .venv
  : >$installing
  "$found" -m venv .venv || fail "$found could not make .venv (see above)."
fi

echo "Installing the packages of $requirements into .venv (TensorFlow among \
them: about 2 GB, a few minutes)..."
$python -m pip install --quiet --disable-pip-version-check -r "$requirements" ||
  fail "pip could not install $requirements (see above): check the network and \
the free disk space, then run the same command again."
printf '%s\n' "$wanted" >"$installed"
rm $installing
