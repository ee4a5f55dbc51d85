# shellcheck shell=bash
# set.yaml and fleet.yaml: two measured models and four GPUs with MIG.
cat >set.yaml <<'END'
models:
  - {name: big, profile: big.csv, slo: 100ms, rate: 900/s}
  - {name: small, profile: small.csv, slo: 100ms, rate: 50/s}
END
cat >big.csv <<'END'
device,slice,batch,time_us,mreq_bytes
h100,,8,8000,4000000000
h100,3g.40gb,8,16000,4000000000
h100,1g.10gb,8,60000,20000000000
END
cat >small.csv <<'END'
device,slice,batch,time_us,mreq_bytes
h100,,1,2000,1000000000
h100,1g.10gb,1,10000,1000000000
END
printf 'devices:\n  - {type: h100, count: 4, price: 2, mig: true}\n' >fleet.yaml
