#!/bin/sh
# make_venv.sh REQUIREMENTS [other-lane]: makes the virtual environment $VENV
# (default .venv) with the packages of that file, if it is not there and complete
# already. PYTHON names the Python to make it from; by default, the first one
# found. With other-lane, it makes $VENV-other, from a Python of the lane that
# $VENV is not of. It installs with uv, which takes seconds where pip takes
# minutes, or with pip if uv fails or if pip's settings name another index.
#
# An installation that was interrupted is started again from nothing: the file
# `installing` in the folder is removed only at the end, after a copy of the
# requirements was left that the next call compares.
#
# The environment's Python imports this folder's packages wherever it is started.
#
# Exits with 3 if no Python was found and uv brought none, with 1 after any other
# failure.
set -eu

requirements=$1
venv=${VENV:-.venv}
venv=${venv%/}
named=${PYTHON-}
variable=PYTHON
versions="3.11 3.12 3.13 3.10" # The best first.
supported="3.10 to 3.13"

fail() {
  echo "error: $1" >&2
  exit "${2:-1}"
}

# Prints "3.11", or nothing: a name on the PATH may be a shim for nothing.
version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

is_supported() {
  case " $versions " in *" $1 "*) ;; *) return 1 ;; esac
}

# Each call does it anew, because a clone may have been moved.
add_this_folder() {
  for site in "$venv"/lib/python3*/site-packages; do
    [ ! -d "$site" ] || pwd >"$site/official_albert_clone.pth"
  done
}

# The markers in requirements.txt choose the packages by the same versions.
is_pinned() {
  [ "$1" = 3.10 ] || [ "$1" = 3.11 ]
}

has_uv() {
  uv --version >/dev/null 2>&1
}

pip_install() {
  "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

uses_pypi() {
  case $("$python" -m pip config list) in
    *.index-url=* | *.no-index=*) return 1 ;;
  esac
}

# Whether the folder has the files that this script leaves in it.
was_made_here() {
  for file in "$venv"/installing "$venv"/installed-*; do
    [ ! -e "$file" ] || return 0
  done
  return 1
}

find_python() {
  set -- python3.11 python3.12 python3.13 python3.10 python3 python
  if [ -n "$named" ]; then
    is_supported "$(version_of "$named")" || fail "$variable=$named is not the \
command or path of a Python $supported: name one of these, such as \
python${versions%% *}, or leave $variable out."
    set -- "$named"
  fi
  without_venv=
  for version in $versions; do
    for found; do
      [ "$(version_of "$found")" = "$version" ] || continue
      if has_uv || "$found" -c 'import ensurepip, venv' 2>/dev/null; then
        return
      fi
      without_venv=$found
    done
  done
  [ -z "$without_venv" ] || fail "$without_venv has no venv module: install it \
(on Debian and Ubuntu: apt-get install python3-venv) and run the same command \
again."
  found=${versions%% *}
  has_uv || fail "No Python $supported found: install one of them, or name it: \
make $variable=/path/to/python$found ..." 3
  echo "No Python $supported found: uv brings Python $found."
  status=3
}

if [ "${2-}" = other-lane ]; then
  variable=OTHER_PYTHON
  if is_pinned "$(version_of "$venv/bin/python")"; then
    versions="3.12 3.13" supported="3.12 or 3.13"
  else
    versions="3.11 3.10" supported="3.10 or 3.11"
  fi
  venv=$venv-other
fi
python=$venv/bin/python
installing=$venv/installing
installed=$venv/installed-$requirements
# requirements-dev.txt holds `-r requirements.txt`, so both can change it.
wanted=$(cat requirements.txt "$requirements")

if [ -x "$python" ] && [ ! -e "$installing" ]; then
  version=$(version_of "$python")
  is_supported "$version" || fail "$venv holds another Python than $supported, \
or a broken one: remove the folder and run the same command again."
  [ -z "$named" ] || [ "$(version_of "$named")" = "$version" ] ||
    fail "$venv holds Python $version, and $variable=$named is another version: \
remove the folder, or name another one in VENV."
else
  [ ! -e "$venv" ] || was_made_here ||
    fail "$venv exists, and make did not create it: remove it, or name another \
folder in VENV."
  status=1
  find_python
  rm -rf "$venv"
  mkdir -p "$venv"
  : >"$installing"
  if has_uv; then # With pip (--seed), for those who install more.
    uv venv --quiet --seed --allow-existing --python "$found" "$venv"
  else
    "$found" -m venv "$venv"
  fi || fail "$venv could not be made with $found (see above)." "$status"
  version=$(version_of "$python")
fi

lane="TensorFlow 2.20, the newer lane"
is_pinned "$version" && lane="TensorFlow 2.15, the pinned lane"
echo "Using Python $version ($(readlink -f "$python")): $lane."
if [ ! -e "$installing" ] && [ "$(cat "$installed" 2>&1)" = "$wanted" ]; then
  add_this_folder
  exit 0
fi
: >"$installing"
echo "Installing the packages of $requirements into $venv (TensorFlow among \
them: about 2 GB, a few minutes)..."
uv=false # Fails, so pip installs.
if uses_pypi; then
  if has_uv; then uv=uv; elif pip_install uv; then uv=$venv/bin/uv; fi
fi
"$uv" pip install --quiet --compile-bytecode --python "$python" \
  -r "$requirements" || pip_install -r "$requirements" ||
  fail "$requirements could not be installed (see above): check the network \
and the free disk space, then run the same command again."
add_this_folder
printf '%s\n' "$wanted" >"$installed"
rm "$installing"
