#!/bin/sh
# Prints a line `WORKER ADDRESS HTTP GRPC` for each worker that runs as a job of this user: what the
# update.sh of a front takes.
squeue --me -h -t R -o '%k' | sed -n 's/^weft \([^ ]* [^ ]* [0-9][0-9]* [0-9][0-9]*\)$/\1/p'
