/* Solves integer programs by COIN-OR CBC through its C interface. CBC runs in one thread with a
 * limit on nodes and none on time, so that equal programs have equal solutions. A library of its
 * own, weft_cbc: only the planner links it. */
#include "scheduler/scheduler.h"

#include <coin/Cbc_C_Interface.h>
#include <math.h>
#include <stdlib.h>

static weft_err load(Cbc_Model *model, const weft_program *p)
{
    uint32_t n_entry = p->start[p->n_col];
    CoinBigIndex *start = calloc(p->n_col + 1u, sizeof *start);
    int *row = calloc(n_entry + 1u, sizeof *row);
    double *lower = calloc(p->n_col + 1u, sizeof *lower);
    bool ok = start && row && lower;
    for (uint32_t c = 0; ok && c <= p->n_col; c++)
        start[c] = (CoinBigIndex)p->start[c];
    for (uint32_t i = 0; ok && i < n_entry; i++)
        row[i] = (int)p->row[i];
    if (ok) {
        Cbc_loadProblem(model, (int)p->n_col, (int)p->n_row, start, row, p->coeff, lower, p->upper,
                        p->cost, p->row_lo, p->row_hi);
        for (uint32_t c = 0; !p->relaxed && c < p->n_col; c++)
            Cbc_setInteger(model, (int)c);
    }
    free(start);
    free(row);
    free(lower);
    return ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

static weft_err solve(const weft_program *p, double *x, bool *out_found, double *out_bound)
{
    Cbc_Model *model = Cbc_newModel();
    if (!model)
        return WEFT_ERR_NOMEM;
    weft_err err = load(model, p);
    if (err == WEFT_ERR_OK) {
        Cbc_setObjSense(model, 1);
        Cbc_setLogLevel(model, 0);
        Cbc_setMaximumNodes(model, (int)p->nodes_max);
        Cbc_solve(model);
        bool infeasible = Cbc_isProvenInfeasible(model) != 0;
        bool solved = p->relaxed && Cbc_isProvenOptimal(model);
        const double *best = infeasible   ? NULL
                             : p->relaxed ? Cbc_getColSolution(model)
                                          : Cbc_bestSolution(model);
        best = p->relaxed && !solved ? NULL : best;
        for (uint32_t c = 0; best && c < p->n_col; c++)
            x[c] = p->relaxed ? best[c] : round(best[c]);
        *out_found = best != NULL;
        *out_bound = infeasible   ? HUGE_VAL
                     : solved     ? Cbc_getObjValue(model)
                     : p->relaxed ? 0
                                  : Cbc_getBestPossibleObjValue(model);
    }
    Cbc_deleteModel(model);
    return err;
}

const weft_solver weft_solver_cbc = {.name = "cbc", .solve = solve};
