/* The assignment problem by igraph: the only file that includes igraph, and a library of its own
 * (weft_igraph) because of igraph's licence, GPL-2 or later: programs that do not merge models do
 * not link it.
 *
 * igraph solves the problem by push-relabel with potentials (Cherkassky et al., "Augment or push: a
 * computational study of bipartite matching and unit-capacity flow algorithms", 1998). Left
 * vertices are igraph's vertices 0 .. n_left - 1, right vertices follow. */
#include "passes/passes.h"

#include <igraph/igraph.h>

/* igraph's input and output; all but `graph` are initialised in this order by make_vectors. */
typedef struct problem {
    igraph_t graph;
    igraph_vector_int_t ends; /* two vertices for each edge */
    igraph_vector_t weight;   /* by edge */
    igraph_vector_bool_t side;
    igraph_vector_int_t match; /* by vertex: its partner, -1: none */
} problem;

static bool make_vectors(problem *p, uint32_t n_vertex, uint32_t n_edge)
{
    if (igraph_vector_int_init(&p->ends, 2 * (igraph_integer_t)n_edge) != IGRAPH_SUCCESS)
        return false;
    if (igraph_vector_init(&p->weight, n_edge) == IGRAPH_SUCCESS) {
        if (igraph_vector_bool_init(&p->side, n_vertex) == IGRAPH_SUCCESS) {
            if (igraph_vector_int_init(&p->match, 0) == IGRAPH_SUCCESS)
                return true;
            igraph_vector_bool_destroy(&p->side);
        }
        igraph_vector_destroy(&p->weight);
    }
    igraph_vector_int_destroy(&p->ends);
    return false;
}

static void destroy_vectors(problem *p)
{
    igraph_vector_int_destroy(&p->match);
    igraph_vector_bool_destroy(&p->side);
    igraph_vector_destroy(&p->weight);
    igraph_vector_int_destroy(&p->ends);
}

static bool find_matching(problem *p, uint32_t n_vertex)
{
    if (igraph_create(&p->graph, &p->ends, n_vertex, IGRAPH_UNDIRECTED) != IGRAPH_SUCCESS)
        return false;
    bool found = igraph_maximum_bipartite_matching(&p->graph, &p->side, NULL, NULL, &p->match,
                                                   &p->weight, 0) == IGRAPH_SUCCESS;
    igraph_destroy(&p->graph);
    return found;
}

static bool solve(uint32_t n_left, uint32_t n_right, const weft_assignment_edge *edge,
                  uint32_t n_edge, uint32_t *partner)
{
    problem p;
    igraph_error_handler_t *before = igraph_set_error_handler(igraph_error_handler_ignore);
    bool found = make_vectors(&p, n_left + n_right, n_edge);
    if (found) {
        for (uint32_t i = 0; i < n_edge; i++) {
            VECTOR(p.ends)[2 * i] = edge[i].left;
            VECTOR(p.ends)[2 * i + 1] = n_left + edge[i].right;
            VECTOR(p.weight)[i] = edge[i].weight;
        }
        for (uint32_t i = 0; i < n_right; i++)
            VECTOR(p.side)[n_left + i] = true;
        found = find_matching(&p, n_left + n_right);
        for (uint32_t i = 0; i < n_left && found; i++) {
            igraph_integer_t to = VECTOR(p.match)[i];
            partner[i] = to < 0 ? WEFT_ASSIGNMENT_NONE : (uint32_t)to - n_left;
        }
        destroy_vectors(&p);
    }
    igraph_set_error_handler(before);
    return found;
}

const weft_assignment_solver weft_assignment_igraph = {.name = "igraph", .solve = solve};
