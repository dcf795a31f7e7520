#!/bin/bash
# Tries, inside a boundary, what the boundary has to refuse, and says what went through.
# Arguments: a file of the machine that is hidden, a TCP port of the machine's loopback, and files to make.
secret=$1
port=$2
shift 2
{ read -r line <"$secret"; } 2>/dev/null && [ -n "$line" ] && echo "read $line"
{ : <>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null && echo connect
for target in "$@"; do
  { : >"$target"; } 2>/dev/null && echo "write $target"
done
echo done
