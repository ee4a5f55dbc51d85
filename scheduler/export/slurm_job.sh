# The worker listens on free ports of the address by which Slurm reaches the node, and says so in the
# comment of the job: addresses.sh tells a front. A worker that ends is started again; one that never
# gets ready five times in a row ends the job. SIGTERM (scancel, preemption, requeue) goes to the
# worker too, which answers what it has accepted; before the time limit the job is requeued.
address=$(scontrol -o show node "$SLURMD_NODENAME" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
work=$(mktemp -d)
ended=''
trap 'rm -rf "$work"' EXIT
# Slurm has signalled the worker as well, which a second signal would end at once.
trap 'ended=1' TERM
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
failed=0
while [ "$failed" -lt 5 ] && [ -z "$ended" ]; do
    mkfifo "$work/said"
    setpriv --no-new-privs "$weft" serve "$bundle" "$plan" --address "${address:-$SLURMD_NODENAME}" --http 0 --grpc 0 \
        --metrics 0 --drain-timeout 25s $tls >"$work/said" &
    pid=$!
    exec 3<"$work/said"
    rm "$work/said"
    failed=$((failed + 1))
    while read -r line <&3; do
        ports=$(printf '%s\n' "$line" | sed -n 's/^READY http=\([0-9]*\) grpc=\([0-9]*\) .*/\1 \2/p')
        [ -n "$ports" ] || continue
        failed=0
        scontrol update JobId="$SLURM_JOB_ID" Comment="weft $name ${address:-$SLURMD_NODENAME} $ports" || true
        break
    done
    # A signal interrupts wait.
    code=0
    wait "$pid" || code=$?
    while kill -0 "$pid" 2>/dev/null; do
        code=0
        wait "$pid" || code=$?
    done
    [ -n "$ended" ] || { echo "$name: ended with code $code" >&2; sleep 1; }
done
[ -n "$ended" ] || exit 1
