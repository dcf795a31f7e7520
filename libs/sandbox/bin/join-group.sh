#!/bin/sh
# Enters control groups and becomes the command: nothing that it starts was ever outside of them.
# Arguments: files to write the process's number to, `--`, the command.
while [ "$1" != -- ]; do
  echo $$ >"$1" || exit 70
  shift
done
shift
exec "$@"
