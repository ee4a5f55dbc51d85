#!/usr/bin/env python3
"""If and Loop as exporters write them, beside onnxruntime: one element of rank 0 in one branch or round and of rank 1 in
the other, carried values that no round reads, sizes computed from values that are dead otherwise.

usage: flow_cases.py WORKER [CASE...]
"""
import sequences  # first: it finds the oracles
from onnx import TensorProto, helper
from sequences import body, loop, node

N3 = {"x": ["n", 3]}
FLAG = node("Greater", "k one", "flag")
# The flag as rank 0 and as rank 1.
BRANCHES = {"then_branch": body("", [node("Identity", "half", "t")], "t"),
            "else_branch": body("", [node("Unsqueeze", "half ends", "u"), node("Neg", "u", "e")], "e")}
NUMBERED = [node("Cast", "i", "fi", to=1), node("Add", "a fi", "b")]
INNER = body("i2 c2 d", [node("Identity", "c2", "c3"), node("Cast", "i2", "fi2", to=1), node("Add", "d fi2", "e2")], "c3 e2")
NO = helper.make_tensor("no", TensorProto.BOOL, [], [False])
STEP = [node("Identity", "c", "c1"), node("Mul", "x half", "e")]
RUNS = [{"x": (2, 3), "k": k} for k in (0, 1, 2, 3)]
ROUNDS = [{"x": (2, 3), "k": k} for k in (1, 2, 3)]

CASES = {
    "branches_of_two_ranks": ([FLAG, node("If", "flag", "f", **BRANCHES), node("Tanh", "f", "g"), node("Mul", "x g", "y")],
                              {**N3, "k": []}, "y", RUNS),
    "branches_reshaped": ([FLAG, node("If", "flag", "f", **BRANCHES), node("Reshape", "f minus", "y")],
                          {**N3, "k": []}, "y", RUNS),
    "branches_as_condition": ([FLAG, node("If", "flag", "f", **BRANCHES), node("Greater", "f half", "w"), node("Not", "w", "v"),
                               node("If", "v", "y", then_branch=body("", [node("Neg", "x", "a")], "a"),
                                    else_branch=body("", [node("Tanh", "x", "b")], "b"))], {**N3, "k": []}, "y", RUNS),
    "branches_captured": ([FLAG, node("If", "flag", "f", **BRANCHES), loop(
        "k", "x", body("i c a", [node("Identity", "c", "c1"), node("Mul", "a f", "b")], "c1 b"), "y")],
        {**N3, "k": []}, "y", RUNS),
    "carried_of_two_ranks": ([loop("k", "half x", body("i c s a", [
        node("Identity", "c", "c1"), node("Unsqueeze", "half ends", "u"), node("Sub", "s u", "s1"), node("Mul", "a s", "b")],
        "c1 s1 b"), "rs ra"), node("Add", "ra rs", "y")], {**N3, "k": []}, "y ra", RUNS),
    "carried_to_a_scalar": ([node("Unsqueeze", "half ends", "u"), loop("k", "u x", body("i c s a", [
        node("Identity", "c", "c1"), node("ReduceSum", "s", "s1", keepdims=0), node("Mul", "a s", "b")],
        "c1 s1 b"), "rs ra"), node("Mul", "ra rs", "y")], {**N3, "k": []}, "y", RUNS),
    "carried_unread": ([loop("k", "half x", body("i c s a", STEP + [node("Mul", "a half", "b")], "c1 e b"), "y z")],
                       {**N3, "k": []}, "y z", ROUNDS),
    "carried_as_it_is": ([loop("k", "half x x", body("i c h w a", [
        node("Identity", "c", "c1"), node("Identity", "w", "w1"), node("Mul", "a h", "ah"), node("Sub", "ah w", "b")],
        "c1 h w1 b"), "rh rw ra"), node("Add", "ra rh", "s"), node("Mul", "s rw", "y")], {**N3, "k": []}, "y ra", RUNS),
    "all_carried_as_it_is": ([loop("k", "half x", body("i c h w", [node("Identity", "c", "c1"), node("Identity", "w", "w1")],
                                                       "c1 h w1"), "rh rw"), node("Mul", "rw rh", "y")],
                             {**N3, "k": []}, "y", RUNS),
    "carried_in_turns": ([node("Neg", "x", "z"), loop("k", "x z", body("i c a b", [
        node("Identity", "c", "c1"), node("Identity", "a", "a1")], "c1 b a1"), "ra rb"), node("Mul", "ra half", "y")],
        {**N3, "k": []}, "y rb", RUNS),
    "shape_of_the_dead": ([node("Unsqueeze", "k ends", "ik"), node("Slice", "x ends ik ends", "s"), node("Shape", "s", "is"),
                           node("Expand", "row is", "y")], {**N3, "row": [1, 3], "k": []}, "y",
                          [{"x": (5, 3), "row": (1, 3), "k": k} for k in (2, 3, 9)]),
    "shape_of_the_dead_in_rounds": ([loop("k", "x", body("i c a", [
        node("Identity", "c", "c1"), node("Add", "i one", "i1"), node("Unsqueeze", "i1 ends", "ik"),
        node("Slice", "x ends ik ends", "s"), node("Shape", "s", "is"), node("Expand", "row is", "e"),
        node("ReduceSum", "e", "t", keepdims=0), node("Add", "a t", "b")], "c1 b"), "y")],
        {**N3, "row": [1, 3], "k": []}, "y", [{"x": (5, 3), "row": (1, 3), "k": k} for k in (0, 2, 7)]),
    # Counts that are known: the rounds become nodes of the graph around.
    "few_rounds": ([loop("two", "x", body("i c a", [node("Identity", "c", "c1"), *NUMBERED, node("Mul", "b half", "s")], "c1 b s"),
                         "y z")], N3, "y z", [{"x": (2, 3)}, {"x": (5, 3)}]),
    "few_rounds_of_parts": ([node("SequenceEmpty", "", "l0"), loop("two", "l0", body("i c l", [
        node("Identity", "c", "c1"), node("Add", "i one", "i1"), node("Unsqueeze", "i1 ends", "top"),
        node("Slice", "x ends top ends", "p"), node("SequenceInsert", "l p", "l1")], "c1 l1"), "r"),
        node("SequenceInsert", "r x", "l2"), node("SequenceAt", "l2 zero", "y"), node("SequenceAt", "l2 one", "z"),
        node("SequenceAt", "l2 last", "w")], N3, "y z w", [{"x": (2, 3)}, {"x": (5, 3)}]),
    "few_rounds_end_early": ([loop("two", "x", body("i c a", [node("Less", "i zero", "c1"), *NUMBERED], "c1 b"), "y")],
                             N3, "y", [{"x": (2, 3)}]),
    "few_rounds_end_by_constant": ([loop("two", "x", body("i c a", [node("Constant", "", "c1", value=NO), *NUMBERED], "c1 b"),
                                         "y")], N3, "y", [{"x": (2, 3)}]),
    "few_rounds_go_on_by_constant": ([loop("two", "x", body("i c a", [node("Identity", "true", "c1"), *NUMBERED], "c1 b"), "y")],
                                     N3, "y", [{"x": (2, 3)}]),
    "few_rounds_inside": ([loop("two", "x", body("i c a", [
        node("Identity", "c", "c1"), loop("two", "a", INNER, "b"),
        node("Mul", "b half", "s")], "c1 s b"), "y z")], N3, "y z", [{"x": (3, 3)}]),
    "few_rounds_in_many": ([loop("k", "x", body("i c a", [
        node("Identity", "c", "c1"), loop("two", "a", INNER, "b"),
        node("Mul", "b half", "s")], "c1 s"), "y")], {**N3, "k": []}, "y", RUNS),
    "rank_returned": ([FLAG, node("If", "flag", "y", **BRANCHES)], {**N3, "k": []}, "y", "of rank 0 or 1"),
    "rank_gathered": ([FLAG, node("If", "flag", "f", **BRANCHES), node("Unsqueeze", "f ends", "y")], {**N3, "k": []}, "y",
                      "operand 0 has rank 0 in one branch or round and rank 1 in another"),
    "rank_stacked": ([loop("k", "x", body("i c a", [node("Identity", "c", "c1"), node("Greater", "i one", "flag"), node(
        "If", "flag", "f", **BRANCHES), node("Mul", "a f", "b"), node("Neg", "f", "g")], "c1 b g"), "y z")],
        {**N3, "k": []}, "y z", "has rank 0 or 1, as data decides"),
    "other_ranks": ([FLAG, node("If", "flag", "f", then_branch=body("", [node("ReduceSum", "x", "a", keepdims=0)], "a"),
                                else_branch=body("", [node("Neg", "x", "b")], "b")), node("Neg", "f", "y")],
                    {**N3, "k": []}, "y", "the branches give rank 0 and rank 2"),
}

if __name__ == "__main__":
    sequences.run(CASES)
