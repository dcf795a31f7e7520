# Starts bubblewrap, and starts it again where it did not get as far as the command: a socket that was to be masked may
# be gone by then, and a place for the mask can't be made in a read-only root. Arguments: how many of the words that
# follow are not the command's, and the whole command line, which writes its status to descriptor 4 and may have a
# filter in 3.
own=$1
shift
exec 5>&1
tries=0
while :; do
  # From its beginning, however far the last attempt has read it.
  [ ! -e /proc/self/fd/3 ] || exec 3</proc/self/fd/3
  said=$(exec "$@" 4>&1 >&5 5>&-)
  code=$?
  tries=$((tries + 1))
  # It says how the command ended only if there was one, and a command is started once.
  case $said in *exit-code*) exit $code ;; esac
  [ $code -eq 1 ] && [ $tries -lt 4 ] || exit $code
  seen=0
  left=$#
  gone=0
  while [ $left -gt 0 ]; do
    if [ $seen -lt $((own - 2)) ] && [ "$1" = --ro-bind ] && [ "$2" = /dev/null ] && [ ! -e "$3" ]; then
      shift 3
      left=$((left - 3))
      own=$((own - 3))
      gone=1
    else
      set -- "$@" "$1"
      shift
      left=$((left - 1))
      seen=$((seen + 1))
    fi
  done
  [ $gone -eq 1 ] || exit $code
done
