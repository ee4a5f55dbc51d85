# From one plan to another: what changes, in which order, as commands of three engines; doubles of their programs
# say what was called. A lost node; workers that do not run; no order without a dip.
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
sed 's/150/330/; s/260/150/' set.yaml >more.yaml
expect 0 "$WEFT" plan more.yaml --fleet fleet.yaml --policy bestfit -o new.json
reconcile() { expect 0 "$WEFT" reconcile --from plan.json --plan new.json --fleet fleet.yaml "$@"; }
# The plan that the change leads to is legal, and from there nothing is left to do.
reconcile --engine slurm -o slurm
has out "stage 1"
expect 0 "$WEFT" plan more.yaml --fleet fleet.yaml --check slurm/plan.json
expect 0 "$WEFT" reconcile --from slurm/plan.json --plan new.json --engine slurm -o again
has out " 0 start "
! grep -q sbatch again/apply.sh || die "starts what runs"
# The same plan needs no change, and has the names of the export.
expect 0 "$WEFT" reconcile --from plan.json --plan plan.json --engine slurm -o same
has out " 0 start "
expect 0 "$WEFT" export plan.json --to slurm -o first
(cd first/jobs && ls) >first.names
(cd same/slurm/jobs && ls) >same.names
cmp first.names same.names || die "other names"
"$WEFT" export slurm/plan.json --to slurm -o second >out || die "the new plan cannot be exported"
for job in slurm/slurm/jobs/*; do
    cmp "$job" "second/jobs/$(basename "$job")" || die "$job differs from the export of the new plan"
done
# The commands, run: doubles note what they are asked, and let workers be ready and gone.
mkdir double
for program in sbatch scancel squeue kubectl systemctl scp ssh socat; do
    printf '#!/bin/sh\necho "%s $*" >>"%s/calls"\n' $program "$PWD" >double/$program
done
cat >>double/sbatch <<END
sed -n 's/^name=\([^ ]*\) .*/weft \1 n1 80 81/p' "\$1" >>"$PWD/jobs"
END
cat >>double/scancel <<END
sed -i "/ \${2#--name=} /d" "$PWD/jobs"
END
cat >>double/squeue <<END
case "\$*" in *" -n "*) grep " \$4 " "$PWD/jobs" || true ;; *) cat "$PWD/jobs" ;; esac
END
chmod +x double/*
ls first/jobs | sed 's/\(.*\)\.sh/weft \1 n1 80 81/' >jobs
: >calls
(export PATH="$PWD/double:$PATH" WEFT_WAIT_S=5; reconcile --engine slurm -o applied --apply) || exit 1
sed 's/weft \([^ ]*\) .*/\1/' jobs | sort >runs
ls second/jobs | sed 's/\.sh//' | sort >wanted
cmp runs wanted || die "other workers run"
grep -q '^sbatch' calls && grep -q '^scancel --me --name=' calls || die "nothing was called"
# Folders of any name; the folder's text is no command.
ls first/jobs | sed 's/\(.*\)\.sh/weft \1 n1 80 81/' >before
for folder in "a b" 'x;touch hit;$(touch hit)' -x; do
    cp before jobs
    (export PATH="$PWD/double:$PATH" WEFT_WAIT_S=5; reconcile --engine slurm -o "$folder" --apply) || exit 1
done
[ ! -e hit ] || die "the name of the folder was run"
# A list of jobs that cannot be had does not mean that a worker has ended.
cp double/squeue squeue.kept
sed -i '2i case "$*" in *" -n "*) exit 1 ;; esac' double/squeue
cp before jobs
(export PATH="$PWD/double:$PATH" WEFT_WAIT_S=1; expect 1 "$WEFT" reconcile --from plan.json --plan new.json --fleet fleet.yaml \
    --engine slurm -o unknown --apply) || exit 1
has err "does not end"
cp squeue.kept double/squeue
# A command that fails ends the script.
cp double/sbatch sbatch.kept
printf '#!/bin/sh\nexit 1\n' >double/sbatch
(export PATH="$PWD/double:$PATH"; expect 1 "$WEFT" reconcile --from plan.json --plan new.json --engine slurm -o failed --apply) || exit 1
has err "a command failed"
# Of systemd: copies first, then starts, then the front, then ends.
: >calls
(export PATH="$PWD/double:$PATH"; reconcile --engine systemd -o systemd --apply) || exit 1
has calls "systemctl --host=root@weft-h100-0 daemon-reload"
awk '/ start /{ s = NR } / stop /{ e = e ? e : NR } /^scp/{ c = NR } END { exit !(c < s && s < e) }' calls || die "order: $(shown calls)"
for unit in $(sed -n 's/.* start \(.*\)/\1/p' calls); do
    ls systemd/systemd/*/"$unit" >/dev/null || die "no file of $unit"
done
reconcile --engine systemd --front haproxy -o fronts
has fronts/apply.sh 'front-1/update.sh'
filled fronts/front-1/haproxy.cfg
# Of Kubernetes: replicas of groups that both exports name alike; those without a worker are deleted.
: >calls
(export PATH="$PWD/double:$PATH"; reconcile --engine kubernetes --front gateway -o kubernetes --apply) || exit 1
has calls "kubectl rollout status deployment/weft-g"
has calls "kubectl apply -f"
for group in $(sed -n 's/^kubectl scale deployment.\([^ ]*\) .*/\1/p' calls | sort -u); do
    last=$(sed -n "s/^kubectl scale deployment.$group --replicas=//p" calls | tail -1)
    want=$(awk -v g="name: $group" '$0 ~ "^  " g "$" { on = 1 } on && /replicas:/ { print $2; exit }' \
        kubernetes/kubernetes/device-plugin/deployments.yaml)
    [ "$last" = "${want:-0}" ] || die "$group: $last replicas, the plan has ${want:-0}"
done
# A new bundle for the same plan: every worker starts again, as another one, and the old ones end.
ls first/jobs | sed 's/\(.*\)\.sh/weft \1 n1 80 81/' >jobs
cp sbatch.kept double/sbatch
roll=(--from plan.json --plan plan.json --fleet wide.yaml --roll --bundle /srv/weft/two.weft)
sed -E 's/count: [0-9]+/count: 9/' fleet.yaml >wide.yaml
(export PATH="$PWD/double:$PATH" WEFT_WAIT_S=5
    expect 0 "$WEFT" reconcile "${roll[@]}" --engine slurm -o rolled --apply) || exit 1
[ "$(wc -l <jobs)" = "$(wc -l <first.names)" ] || die "other workers run: $(shown jobs)"
sed 's/weft \([^ ]*\) .*/\1.sh/' jobs | grep -qxFf first.names && die "runs with the old bundle: $(shown jobs)"
for job in rolled/slurm/jobs/*; do has "$job" /srv/weft/two.weft; done
expect 0 "$WEFT" reconcile --from rolled/plan.json --plan plan.json --engine slurm -o again
has out " 0 start "
: >calls
(export PATH="$PWD/double:$PATH"; expect 0 "$WEFT" reconcile "${roll[@]}" --engine systemd -o rolled-systemd --apply) || exit 1
grep -q '^ssh root@.* sh -s -- .*/devices weft-' calls || die "instances are not looked up: $(shown calls)"
[ "$(grep -c 'systemctl .* start ' calls)" = "$(grep -c 'systemctl .* stop ' calls)" ] || die "$(shown calls)"
# On Kubernetes group by group, each until its pods are replaced; no replicas change.
: >calls
(export PATH="$PWD/double:$PATH"; expect 0 "$WEFT" reconcile "${roll[@]}" --engine kubernetes -o rolled-pods --apply) || exit 1
awk '/^kubectl apply -f/ { n++ } /^kubectl rollout status/ { r++; if (r != n) exit 1 } END { exit !(n && n == r) }' calls ||
    die "order: $(shown calls)"
[ "$(grep -c 'rollout status' calls)" = "$(grep -c 'kind: Deployment' rolled-pods/kubernetes/device-plugin/deployments.yaml)" ] ||
    die "not all groups: $(shown calls)"
! grep -q 'kubectl scale' calls || die "$(shown calls)"
# Without room the roll is refused, and with too few workers in place, too.
expect 3 "$WEFT" reconcile --from plan.json --plan plan.json --roll --engine kubernetes -o bad
has err "--rollout in-place ends a worker first"
expect 3 "$WEFT" reconcile "${roll[@]}" --engine kubernetes --rollout in-place -o bad
has err "--rollout surge starts one before"
expect 0 "$WEFT" reconcile "${roll[@]}" --engine kubernetes --rollout in-place --allow-dip -o dips
has out "falls to"
# Workers that do not run are started; unknown engines and fronts are refused.
sed 1d first.names | sed 's/\.sh//' >running
expect 0 "$WEFT" reconcile --from plan.json --plan plan.json --engine slurm -o missing --running running
has out " 1 start "
has missing/apply.sh "sbatch \"\$here/slurm/jobs/$(head -1 first.names)\""
# A worker of no plan is told of; services of other names are none.
printf 'weft-d99-s0\nweft-server\nother\n' | cat running - >more
expect 0 "$WEFT" reconcile --from plan.json --plan plan.json --engine slurm -o missing --running more
has err "weft-d99-s0: runs, is not of the old plan, and is left alone"
[ "$(grep -c "left alone" err)" = 1 ] || die "$(shown err)"
expect 2 "$WEFT" reconcile --from plan.json --plan new.json --engine slurm --bind '*:80' -o bad
has err "--bind is for haproxy and envoy, not for slurm"
# What a change that failed has begun does not start twice.
sed -n 's/^sbatch.*jobs.\(.*\)\.sh"/\1/p' slurm/apply.sh | head -1 >>running
expect 1 "$WEFT" reconcile --from plan.json --plan new.json --fleet fleet.yaml --engine slurm -o begun --running running
has err "is not of the old plan, and would start again"
expect 2 "$WEFT" reconcile --from plan.json --plan new.json --policy bestfit --engine slurm -o bad
expect 1 "$WEFT" reconcile --from plan.json --plan new.json --engine slurm --front gateway -o bad
has err "is no front of slurm"
expect 2 "$WEFT" reconcile --from plan.json --plan new.json --engine podman -o bad
expect 2 "$WEFT" reconcile --from plan.json --engine slurm -o bad
expect 2 "$WEFT" reconcile set.yaml --from plan.json --plan new.json --engine slurm -o bad
# A node is lost: a plan for the rest, and what is missing until it runs; too little left is said.
expect 0 "$WEFT" reconcile set.yaml --fleet fleet.yaml --from plan.json --lost weft-a100-80-0 --engine slurm -o lost
has out "until then share has 0/s of 260/s"
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check lost/plan.json
expect 1 "$WEFT" reconcile set.yaml --fleet fleet.yaml --from plan.json --lost nowhere --engine slurm -o bad
has err "nothing on this node"
# A full fleet: every share of the device moves, and nothing else can carry it.
cat >one.yaml <<'END'
models:
  - {name: a, profile: a.csv, slo: 100ms, rate: 90/s}
END
printf 'device,slice,batch,time_us\na100-80,60%%,1,10000\n' >a.csv
printf 'devices:\n  - {type: a100-80, count: 1, mps: true}\n' >one_gpu.yaml
expect 0 "$WEFT" plan one.yaml --fleet one_gpu.yaml --policy bestfit -o a.json
printf 'device,slice,batch,time_us\na100-80,80%%,1,9000\n' >a.csv
expect 0 "$WEFT" plan one.yaml --fleet one_gpu.yaml --policy bestfit -o b.json
expect 3 "$WEFT" reconcile --from a.json --plan b.json --engine slurm -o full
has err "one more a100-80"
expect 0 "$WEFT" reconcile --from a.json --plan b.json --engine slurm -o full --allow-dip
has out "a falls to 0/s, needed are 90/s"
sed 's/count: 1/count: 2/' one_gpu.yaml >two_gpu.yaml
expect 0 "$WEFT" reconcile --from a.json --plan b.json --engine slurm -o full --fleet two_gpu.yaml --format json
has out '"least_starts": 1'
has out '"dips": []'
