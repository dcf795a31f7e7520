#!/bin/sh
# Ends the process group of a server when the recorder that started it is gone, by SIGKILL or a crash: then nobody else
# would. Reads from a pipe that only the recorder holds: first the number of the group, once there is one, then a word
# when the recorder has ended the group itself. Only the end of the pipe without that word means that it is gone.
trap '' HUP INT TERM
read -r group || exit 0
read -r settled && exit 0
kill -s TERM -- "-$group" 2>/dev/null || exit 0
sleep 1
kill -s KILL -- "-$group" 2>/dev/null
