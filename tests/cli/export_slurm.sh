# Slurm: slurmd reads the configuration of every node; the jobs are valid shell and request existing
# resources.
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
expect 0 "$WEFT" export plan.json --to slurm -o slurm --config /opt/weft
has slurm/slurm-nodes.conf "mig:1g.10gb:"
has slurm/gres.conf "Name=mps Count=100 File=/dev/nvidia0"
for job in slurm/jobs/*.sh; do
    sh -n "$job" || die "$job is no shell script"
    name=$(basename "$job" .sh)
    has "$job" "/opt/weft/plans/$name.json"
    filled "slurm/plans/$name.json"
    has "$job" "#SBATCH --mem="
done
# From a store: a job gets the bundle before it starts its worker.
expect 0 "$WEFT" export plan.json --to slurm -o stored --store /net/store --digest "sha256:$(printf 'a%.0s' $(seq 64))"
for job in stored/jobs/*.sh; do
    sh -n "$job" || die "$job is no shell script"
    has "$job" "/usr/bin/weft pull /net/store sha256:aaaa"
    has "$job" "bundle=/srv/weft/aaaaaaaaaaaaaaaa.weft"
done
# The nodes have what their jobs ask for.
asked() { sed -n "s/^#SBATCH --$1=\([0-9]*\)M*\$/\1/p" slurm/jobs/*.sh | awk '{ n += $1 } END { print n }'; }
given() { sed -n "s/.* $1=\([0-9]*\) .*/\1/p" slurm/slurm-nodes.conf | awk '{ n += $1 } END { print n }'; }
[ "$(asked cpus-per-task)" = "$(given CPUs)" ] || die "jobs ask for $(asked cpus-per-task) CPUs, nodes have $(given CPUs)"
[ "$(asked mem)" = "$(given RealMemory)" ] || die "jobs ask for $(asked mem) MiB, nodes have $(given RealMemory)"
# A job names its node only where it must.
for job in $(grep -l -e "--gres=mig" slurm/jobs/*.sh); do
    node=$(sed -n 's/^#SBATCH --nodelist=//p' "$job")
    has slurm/slurm-nodes.conf "NodeName=$node "
done
! grep -l -e "--gres=gpu" slurm/jobs/*.sh | xargs -r grep -e --nodelist || die "a whole GPU is bound to its node"
# Options of the site; nothing of the export changes what it has chosen.
! grep -E '^(GresTypes|SelectType|PartitionName)' slurm/*.conf || die "overrides the site's configuration"
expect 0 "$WEFT" export plan.json --to slurm -o site --sbatch partition=gpu --sbatch account=ml --sbatch mem=7G \
    --sbatch 'constraint=[a|b]'
for job in site/jobs/*.sh; do
    has "$job" "#SBATCH --partition=gpu"
    has "$job" "#SBATCH --constraint=[a|b]"
    [ "$(grep -c -e '--mem=' "$job")" = 1 ] || die "$job has two sizes of memory"
    sh -n "$job" || die "$job is no shell script"
done
for wrong in 'wrap=rm' 'partition' 'partition=' 'account=a b' 'account=$(x)' "comment=x"; do
    expect 1 "$WEFT" export plan.json --to slurm -o bad --sbatch "$wrong"
    has err "no KEY=VALUE that jobs may have"
done
# Jobs may not gain privileges; on CPUs they have a limit of memory, which their node has.
for job in slurm/jobs/*.sh; do
    has "$job" "setpriv --no-new-privs"
done
"$WEFT" compile "$examples/digits.yaml" -o digits.weft 2>err || die "$(shown err)"
expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" -o cpu.json
expect 0 "$WEFT" export cpu.json --to slurm -o cpu
memory=$(sed -n 's/^#SBATCH --mem=\([0-9]*\)M$/\1/p' cpu/jobs/*.sh)
[ "${memory:-0}" -gt 5120 ] && [ "$memory" -lt 6144 ] || die "--mem=$memory"
has cpu/slurm-nodes.conf "RealMemory=$memory"
command -v slurmd >/dev/null || skip "no slurmd"
# Other character devices stand for /dev/nvidiaN, which need not exist.
check() {
    {
        printf 'ClusterName=test\nSlurmctldHost=localhost\nSlurmdSpoolDir=%s\n' "$PWD"
        printf 'SelectType=select/cons_tres\nGresTypes=gpu,mps,mig\n'
        cat "$1/slurm-nodes.conf"
    } >slurm.conf
    sed -e 's#/dev/nvidia0#/dev/null#; s#/dev/nvidia1#/dev/zero#; s#/dev/nvidia2#/dev/full#' \
        "$1/gres.conf" >gres.conf
    : >all
    for node in $(sed -n 's/^NodeName=\([^ ]*\).*/\1/p' slurm.conf); do
        expect 0 timeout 60 slurmd -G -f "$PWD/slurm.conf" -N "$node"
        lacks err "error"
        cat out err >>all
    done
}
check slurm
has all "Type=1g.10gb"
has all "Name=mps"
# A cluster without shares has no mps.
grep -v share set.yaml >less.yaml
expect 0 "$WEFT" plan less.yaml --fleet fleet.yaml -o less.json
expect 0 "$WEFT" export less.json --to slurm -o less
lacks less/slurm-nodes.conf "mps:"
check less
has all "Name=mig Type=1g.10gb"
# The checker finds planted faults.
sed -i 's/ Type=/ Typo=/' gres.conf
timeout 60 slurmd -G -f "$PWD/slurm.conf" -N weft-h100-0 >out 2>err && die "a fault went unseen"
true
