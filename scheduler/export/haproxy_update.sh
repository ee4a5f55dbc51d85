#!/bin/sh
# update.sh SOCKET [ADDRESSES]: brings a HAProxy that runs to the servers of this folder, over its
# socket: weights, addresses, new servers; servers that are gone get no more requests, and the script
# ends when they have answered theirs, so that their workers can be stopped. Prints the commands.
# ADDRESSES (-: standard input) has lines `WORKER ADDRESS HTTP GRPC`, which count more than the table.
# Exit code 4: the configuration lacks a model; reload it with haproxy.cfg, then run this again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
socket=${1:?the socket of HAProxy}
addresses=${2:-/dev/null}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$addresses" = - ]; then cat; else cat "$addresses"; fi >"$work/addresses"

# Gives HAProxy the commands of standard input, over one connection; its answers are in $work/said.
ask() {
    { echo prompt; cat; echo quit; } | socat -t60 - "UNIX-CONNECT:$socket" >"$work/answer"
    sed 's/^\(> \)*//' "$work/answer" >"$work/said"
}
# The same for commands that say something only if they fail, or that all is well.
change() {
    tee "$work/commands" | ask
    cat "$work/commands"
    grep -v -e '^$' -e '^New server registered' -e 'changed from' -e 'updated' -e 'no need to change' \
        "$work/said" >&2 || return 0
    exit 1
}

echo 'show servers state' | ask
cp "$work/said" "$work/state"
grep -q srv_name "$work/state" || { echo "update.sh: no servers' state from $socket" >&2; exit 1; }
: >"$work/gone"
code=0
awk -v gone="$work/gone" '
    FILENAME ~ /addresses$/ {
        if (NF == 4 && $2 ~ /^[A-Za-z0-9._:-]+$/ && $3 ~ /^[0-9]+$/ && $4 ~ /^[0-9]+$/) { address[$1] = $2; http[$1] = $3; grpc[$1] = $4 }
        next
    }
    FILENAME ~ /state$/ {
        if (NF > 20 && $1 ~ /^[0-9]/) {
            key = $2 "/" $4; has[key] = 1; backend[$2] = 1
            addr[key] = $5; admin[key] = $7; weight[key] = $8; fqdn[key] = $18; port[key] = $19
        }
        next
    }
    # backend server address port check-port weight options
    {
        key = $1 "/" $2; to = $3; at = $4; check = $5; options = ""; wanted[key] = 1
        if ($2 in address) {
            to = address[$2]; check = http[$2]; at = $1 ~ /^g/ ? grpc[$2] : http[$2]
        }
        for (i = 7; i <= NF; i++) options = options " " ($(i - 1) == "port" ? check : $i)
        if (!($1 in backend)) {
            missing = 1
        } else if (to == "0.0.0.0") {
            next # published later
        } else if (!(key in has)) {
            print "add server " key " " to ":" at " weight " $6 options
            print "enable health " key
            print "enable server " key
        } else {
            if ((to != addr[key] && to != fqdn[key]) || at != port[key]) {
                print "set server " key " addr " to " port " at
                print "set server " key " check-port " check
            }
            if ($6 != weight[key]) print "set server " key " weight " $6
            if (admin[key] % 64 != 0) print "set server " key " state ready"
        }
    }
    END {
        for (key in has) if (!(key in wanted) && admin[key] % 2 == 0) { # 1: in maintenance
            print "set server " key " state drain"
            print key >gone
        }
        exit missing ? 4 : 0
    }' "$work/addresses" "$work/state" "$here/servers" >"$work/plan" || code=$?
[ ! -s "$work/plan" ] || change <"$work/plan"
if [ -s "$work/gone" ]; then
    for _ in $(seq 120); do
        echo 'show stat' | ask
        awk -F, 'NR == FNR { gone[$1] = 1; next } ($1 "/" $2) in gone && $3 + $5 > 0 { busy = 1 }
            END { exit busy }' "$work/gone" "$work/said" && break
        sleep 0.5
    done
    sed 's/.*/set server & state maint/' "$work/gone" | change
fi
exit "$code"
