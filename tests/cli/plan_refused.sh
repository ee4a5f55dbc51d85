# A fleet without room: where it was shown that there is no plan, the message ends there; where the search ended
# before, as over 64 models, it says so. Also for the goal carbon.
printf 'device,slice,batch,time_us,mreq_bytes,energy_j\nt4,,1,10000,1000000000,1\n' >a.csv
problem() { # MODELS; a device has time for one model, and by its throughput for one and a half
    echo models:
    for i in $(seq "$1"); do echo "  - {name: m$i, profile: a.csv, slo: 21ms, rate: 60/s}"; done
} >set.yaml
fleet() { printf 'devices:\n  - {type: t4, count: %d}\n' "$1" >fleet.yaml; }
problem 3
fleet 2
for goal in cost carbon; do
    expect 3 "$WEFT" plan set.yaml --fleet fleet.yaml --goal $goal
    has err "the fleet has no place left for 60/s"
    lacks err "no plan was found"
done
problem 65
fleet 64
expect 3 "$WEFT" plan set.yaml --fleet fleet.yaml
has err "the fleet has no place left for 60/s"
has err "no plan was found, which does not show that there is none"
fleet 65
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml
has out "65 devices"
has out "proven"
