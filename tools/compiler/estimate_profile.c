/* `weft estimate --profile`: a profile as the CSV that weft plan reads (layout weft). */
#include "tools/compiler/estimate.h"

#include "base/file.h"
#include "base/str.h"

/* Appends a number with as many digits as are needed to read the same number back. */
static void put(weft_buf *text, double x)
{
    weft_buf_puts(text, ",");
    weft_buf_put_f64(text, x);
}

weft_err weft_tool_write_profile(const weft_profile *profile, const char *path, weft_diag *diag)
{
    weft_buf text = {0};
    weft_buf_puts(
        &text,
        "device,slice,batch,procs,time_us,throughput_per_s,creq,mreq_bytes,"
        "bandwidth_gbps,energy_j,expected_error,time_p5_us,time_p95_us,source,use,idle_us\n");
    for (size_t i = 0; i < profile->n; i++) {
        const weft_profile_point *p = &profile->point[i];
        const weft_cost *c = &p->cost;
        double per_s =
            p->throughput_per_s > 0 ? p->throughput_per_s : p->batch * p->procs / c->time_us * 1e6;
        weft_buf_printf(&text, "%s,%s,%u,%u", p->device, p->slice, p->batch, p->procs);
        put(&text, c->time_us);
        put(&text, per_s);
        put(&text, c->creq);
        weft_buf_printf(&text, ",%llu", (unsigned long long)c->mreq_bytes);
        put(&text, c->bandwidth_gbps);
        put(&text, c->energy_j);
        put(&text, c->expected_error);
        put(&text, c->time_p5_us);
        put(&text, c->time_p95_us);
        weft_buf_printf(&text, ",%s,", c->source);
        char use[WEFT_USEHIST_TEXT_MAX] = "";
        if (weft_usehist_is_known(&p->use))
            weft_usehist_format(&p->use, use);
        weft_buf_printf(&text, "%s,", use);
        if (p->idle_us > 0)
            weft_buf_put_f64(&text, p->idle_us);
        weft_buf_puts(&text, "\n");
    }
    weft_err err =
        text.failed ? WEFT_ERR_NOMEM : weft_file_write(path ? path : "-", text.at, text.len, diag);
    weft_buf_finish(&text);
    return err;
}
