# shellcheck shell=bash
# For the tests of `weft export`: plan.json of MIG instances, whole GPUs, MPS shares and CPUs.
cat >set.yaml <<'END'
models:
  - {name: big, profile: big.csv, slo: 100ms, rate: 900/s}
  - {name: Small_1.x, profile: small.csv, slo: 100ms, rate: 150/s}
  - {name: tiny, profile: tiny.csv, slo: 100ms, rate: 30/s}
  - {name: share, profile: share.csv, slo: 100ms, rate: 260/s}
END
cat >big.csv <<'END'
device,slice,batch,time_us,mreq_bytes,procs
h100,3g.40gb,8,16000,4000000000,2
h100,1g.10gb,8,50000,2000000000,1
END
cat >small.csv <<'END'
device,slice,batch,time_us,mreq_bytes
h100,1g.10gb,1,10000,1000000000
END
cat >tiny.csv <<'END'
device,slice,batch,time_us,mreq_bytes
cpu,1core,1,25000,100000000
END
cat >share.csv <<'END'
device,slice,batch,time_us,mreq_bytes
a100-80,40%,1,10000,1000000000
END
cat >fleet.yaml <<'END'
devices:
  - {type: h100, count: 4, price: 2, mig: true}
  - {type: a100-80, count: 4, price: 1, mps: true}
  - {type: cpu, count: 2, cores: 2, slices: [1, 1]}
END
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --policy bestfit -o plan.json
