/* `weft estimate --profile`: a profile as the CSV that weft plan reads (layout weft). */
#include "tools/estimate.h"

#include "base/file.h"
#include "base/str.h"

weft_err weft_tool_write_profile(const weft_profile *profile, const char *path, weft_diag *diag)
{
    weft_buf text = {0};
    weft_buf_puts(&text, "device,slice,batch,procs,time_us,throughput_per_s,creq,mreq_bytes,"
                         "bandwidth_gbps,energy_j,expected_error,source\n");
    for (size_t i = 0; i < profile->n; i++) {
        const weft_profile_point *p = &profile->point[i];
        const weft_cost *c = &p->cost;
        double per_s =
            p->throughput_per_s > 0 ? p->throughput_per_s : p->batch * p->procs / c->time_us * 1e6;
        weft_buf_printf(&text, "%s,%s,%u,%u,%.9g,%.9g,%.6g,%llu,%.6g,%.6g,%.6g,%s\n", p->device,
                        p->slice, p->batch, p->procs, c->time_us, per_s, c->creq,
                        (unsigned long long)c->mreq_bytes, c->bandwidth_gbps, c->energy_j,
                        c->expected_error, c->source);
    }
    weft_err err =
        text.failed ? WEFT_ERR_NOMEM : weft_file_write(path ? path : "-", text.at, text.len, diag);
    weft_buf_finish(&text);
    return err;
}
