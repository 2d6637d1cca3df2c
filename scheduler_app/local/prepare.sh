#!/bin/sh
# Make the virtual environment $VENV with the packages of requirements.lock; does nothing when it is up to date.
set -eu
VENV="${VENV:-.venv}"
WANTED="requirements.lock"
DONE="$VENV/requirements.done"
LOG="$VENV/install.log"

if cmp -s "$WANTED" "$DONE" && "$VENV/bin/python" -c '' 2>/dev/null; then exit 0; fi

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then echo "$name"; return; fi
    done
}

on_debian_as_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

python="$(find_python)"
if [ -z "$python" ]; then
    echo "Python 3.11 or newer is needed; python3 here is $(python3 --version 2>/dev/null || echo missing)." \
        "To mend it: apt-get install python3 python3-venv (Debian 12, Ubuntu 24.04 or newer), or PYTHON=/path make ..." >&2
    exit 3
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    if on_debian_as_root; then
        echo "installing $package with apt-get"
        if ! { apt-get --quiet update && DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes install "$package"; } >/tmp/everyslot-apt.$$ 2>&1; then
            tail -5 /tmp/everyslot-apt.$$ >&2
            rm -f /tmp/everyslot-apt.$$
            exit 3
        fi
        rm -f /tmp/everyslot-apt.$$
    else
        echo "Python's venv module is missing. To mend it: sudo apt-get install $package" >&2
        exit 3
    fi
fi

echo "Setting up $VENV from requirements.lock (the first time takes about a minute)"
new_enough "$VENV/bin/python" || "$python" -m venv --clear "$VENV"
"$VENV/bin/python" -m pip --version >/dev/null 2>&1 || "$VENV/bin/python" -m ensurepip >/dev/null
if ! "$VENV/bin/python" -m pip install --disable-pip-version-check --require-hashes -r "$WANTED" >"$LOG" 2>&1; then
    tail -15 "$LOG" >&2
    echo "The packages could not be installed; all of pip's words are in $LOG." >&2
    exit 3
fi
cp "$WANTED" "$DONE"
