/* The rule of batch_rows.h. */
#include "ops/batch_rows.h"

/* Values of a launch that are more bytes leave the cache. */
static const double cache_bytes = 8 << 20, weight_cost = 2;
enum { ROWS_MIN = 2 };

void weft_rows_add(weft_rows_traffic *sum, weft_op_id op, double bytes)
{
    sum->unknown = sum->unknown || bytes < 0 || (weft_op_get(op)->traits & WEFT_T_BODY) != 0;
    if (op == WEFT_OP_VIEW || op == WEFT_OP_CONCAT)
        return;
    sum->widest = bytes > sum->widest ? bytes : sum->widest;
    sum->spilled += bytes > cache_bytes ? bytes : 0;
}

int64_t weft_rows_choose(int64_t all, uint32_t threads, weft_rows_fn *traffic, void *user)
{
    int64_t rows = threads > ROWS_MIN ? threads : ROWS_MIN;
    if (rows >= all)
        return 0;
    weft_rows_traffic whole = traffic(user, all);
    if (whole.unknown || whole.widest <= cache_bytes)
        return 0;
    while (rows * 2 < all && traffic(user, rows * 2).widest <= cache_bytes)
        rows *= 2;
    double again = (double)((all - 1) / rows) * whole.weights;
    return whole.spilled > weight_cost * again ? rows : 0;
}
