/* Solves integer programs by COIN-OR CBC, and linear ones by CLP, which CBC is made of, through
 * their C interfaces. Both run in one thread; CBC has a limit on nodes and none on time, so that
 * equal programs have equal solutions. A library of its own, weft_cbc: only the planner links it.
 *
 * CBC has assertions in it that some programs violate (in CLP's primal simplex, which cleans up
 * after cuts), and then ends the process. It therefore runs in a process of its own, and a program
 * on which it ends is one of which nothing is known. */
#include "scheduler/scheduler.h"

#include "base/file.h"

#include <coin/Cbc_C_Interface.h>
#include <coin/Clp_C_Interface.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The arrays that both solvers want in types of their own. */
typedef struct arrays {
    CoinBigIndex *start;
    int *row;
    double *lower;
} arrays;

static void free_arrays(arrays *a)
{
    free(a->start);
    free(a->row);
    free(a->lower);
}

static weft_err make_arrays(const weft_program *p, arrays *a)
{
    uint32_t n_entry = p->start[p->n_col];
    *a = (arrays){.start = calloc(p->n_col + 1u, sizeof *a->start),
                  .row = calloc(n_entry + 1u, sizeof *a->row),
                  .lower = calloc(p->n_col + 1u, sizeof *a->lower)};
    if (!a->start || !a->row || !a->lower) {
        free_arrays(a);
        return WEFT_ERR_NOMEM;
    }
    for (uint32_t c = 0; c <= p->n_col; c++)
        a->start[c] = (CoinBigIndex)p->start[c];
    for (uint32_t i = 0; i < n_entry; i++)
        a->row[i] = (int)p->row[i];
    return WEFT_ERR_OK;
}

static weft_err solve_linear(const weft_program *p, double *x, bool *out_found, double *out_bound)
{
    arrays a;
    WEFT_TRY(make_arrays(p, &a));
    Clp_Simplex *model = Clp_newModel();
    if (model) {
        Clp_setLogLevel(model, 0);
        Clp_loadProblem(model, (int)p->n_col, (int)p->n_row, a.start, a.row, p->coeff, a.lower,
                        p->upper, p->cost, p->row_lo, p->row_hi);
        *out_found = Clp_initialDualSolve(model) == 0 && Clp_status(model) == 0;
        *out_bound = *out_found ? Clp_objectiveValue(model) : 0;
        if (*out_found)
            memcpy(x, Clp_primalColumnSolution(model), p->n_col * sizeof *x);
        if (*out_found && p->dual)
            memcpy(p->dual, Clp_dualRowSolution(model), p->n_row * sizeof *p->dual);
        Clp_deleteModel(model);
    }
    free_arrays(&a);
    return model ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

static weft_err load(Cbc_Model *model, const weft_program *p)
{
    arrays a;
    WEFT_TRY(make_arrays(p, &a));
    Cbc_loadProblem(model, (int)p->n_col, (int)p->n_row, a.start, a.row, p->coeff, a.lower,
                    p->upper, p->cost, p->row_lo, p->row_hi);
    for (uint32_t c = 0; c < p->n_col; c++)
        Cbc_setInteger(model, (int)c);
    free_arrays(&a);
    return WEFT_ERR_OK;
}

/* What the process of the solver tells, before the solution. */
typedef struct solver_answer {
    weft_err err;
    bool found;
    double bound;
} solver_answer;

static weft_err solve_integer(const weft_program *p, double *x, bool *out_found, double *out_bound)
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
        const double *best = infeasible ? NULL : Cbc_bestSolution(model);
        for (uint32_t c = 0; best && c < p->n_col; c++)
            x[c] = round(best[c]);
        *out_found = best != NULL;
        *out_bound = infeasible ? HUGE_VAL : Cbc_getBestPossibleObjValue(model);
    }
    Cbc_deleteModel(model);
    return err;
}

/* In the solver's own process, whose end says no more than the answer. */
static _Noreturn void run_apart(const weft_program *p, double *x, int fd)
{
    solver_answer a = {.err = WEFT_ERR_OK};
    int silent = open("/dev/null", O_WRONLY);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it holds the planner's sockets open */
    if (silent >= 0) { /* neither the text of an assertion nor what CBC flushes is for anybody */
        dup2(silent, STDOUT_FILENO);
        dup2(silent, STDERR_FILENO);
    }
    a.err = solve_integer(p, x, &a.found, &a.bound);
    bool ok =
        weft_file_put(fd, &a, sizeof a) == 0 && weft_file_put(fd, x, p->n_col * sizeof *x) == 0;
    _exit(ok ? 0 : 1);
}

static weft_err solve(const weft_program *p, double *x, bool *out_found, double *out_bound)
{
    solver_answer a;
    int fd[2];
    if (p->relaxed)
        return solve_linear(p, x, out_found, out_bound);
    if (pipe2(fd, O_CLOEXEC) != 0)
        return WEFT_ERR_NOMEM;
    pid_t child = fork();
    if (child == 0) {
        close(fd[0]);
        run_apart(p, x, fd[1]);
    }
    close(fd[1]);
    bool told = child > 0 && weft_file_get(fd[0], &a, sizeof a) &&
                weft_file_get(fd[0], x, p->n_col * sizeof *x);
    close(fd[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    if (child < 0)
        return WEFT_ERR_NOMEM;
    *out_found = told && a.found;
    *out_bound = told ? a.bound : 0;
    return told ? a.err : WEFT_ERR_OK;
}

const weft_solver weft_solver_cbc = {.name = "cbc", .solve = solve};
