#!/usr/bin/env python3
"""Random models of the operators of ai.onnx.ml, compared with onnxruntime.

usage: ml_operators.py WORKER [--seed N] [--count N] [--only NAME] [--save DIR]
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

import operator_cases
from onnx_file import Graph, Node, Port

ML = "ai.onnx.ml"
POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def rows_of(rs):
    return int(rs.choice([1, 1, 2, 7, 17, 64, 130]))


def features(rs, rows, n, dtype="float32"):
    """Numbers with ties, NaN and infinities; integers are small."""
    x = rs.choice([-1.0, -0.5, 0.0, 0.25, 1.0, 2.0], (rows, n)) if rs.rand() < 0.5 else rs.randn(rows, n)
    if dtype.startswith("float") and rs.rand() < 0.6:
        x[rs.rand(rows, n) < 0.1] = np.nan
        x[rs.rand(rows, n) < 0.03] = np.inf
        x[rs.rand(rows, n) < 0.03] = -np.inf
    if dtype.startswith("int"):
        x = np.nan_to_num(np.round(x * 2))
    return x.astype(dtype)


def finite(rs, rows, n, scale=1.0):
    return (rs.randn(rows, n) * scale).astype("float32")


def model(op, attrs, x, outputs, versions=1, extra=None):
    """One operator on input x (its rows symbolic) and constants `extra`."""
    extra = extra or {}
    dims = ["N"] + list(x.shape[1:])
    g = Graph(opset=17, ir=8, versions={ML: versions})
    g.inputs.append(Port("x", x.dtype.name, dims))
    g.constants.update(extra)
    g.nodes.append(Node(op, ["x"] + list(extra), [n for n, _ in outputs], attrs, ML))
    g.outputs += [Port(n, t) for n, t in outputs]
    return g, {"x": x}


# -- Trees --------------------------------------------------------------------------------------


class Trees:
    """Random trees as lists of nodes; a node is [mode, feature, value, yes, no, missing] or a leaf."""

    def __init__(self, rs, n_feature, modes, n_tree, depth):
        self.rs, self.n_feature, self.modes = rs, n_feature, modes
        self.trees = [self.tree(depth) for _ in range(n_tree)]

    def tree(self, depth):
        nodes = []

        def grow(level):
            at = len(nodes)
            nodes.append(None)
            if level == 0 or (level < depth and self.rs.rand() < 0.25):
                return at
            value = self.rs.choice([-1.0, -0.5, 0.0, 0.25, 1.0, 2.0]) if self.rs.rand() < 0.6 else self.rs.randn()
            if self.rs.rand() < 0.02:
                value = self.rs.choice([np.inf, -np.inf, np.nan])
            yes, no = grow(level - 1), grow(level - 1)
            nodes[at] = [self.modes[self.rs.randint(len(self.modes))], self.rs.randint(self.n_feature),
                         float(np.float32(value)), yes, no, int(self.rs.rand() < 0.3)]
            return at

        grow(depth)
        return nodes


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def random_trees(rs):
    n_feature = rs.randint(1, 9)
    modes = [MODES[rs.randint(6)]] if rs.rand() < 0.6 else MODES
    n_tree = int(rs.choice([1, 2, 3, 9, 30, 70]))
    return Trees(rs, n_feature, modes, n_tree, rs.randint(0, 7))


def nodes_of(t, rs, as_double):
    """Attributes nodes_*; the nodes of each tree in the order of their ids, roots first."""
    a = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                         "missing_value_tracks_true")}
    for tree, nodes in enumerate(t.trees):
        for i, n in enumerate(nodes):
            mode, feature, value, yes, no, missing = n or ["LEAF", 0, 0.0, 0, 0, 0]
            for k, v in zip(a, (tree, i, feature, mode, value, yes, no, missing)):
                a[k].append(v)
    if rs.rand() < 0.3:
        del a["missing_value_tracks_true"]
    out = {f"nodes_{k}": v for k, v in a.items()}
    if as_double:
        out["nodes_values_as_tensor"] = np.array(out.pop("nodes_values"), "float64")
    return out


def leaves_of(t):
    return [(tree, i) for tree, nodes in enumerate(t.trees) for i, n in enumerate(nodes) if n is None]


def weights_of(rs, who, entries, as_double):
    """Attributes of (tree, node, id, weight)."""
    out = {f"{who}_treeids": [e[0] for e in entries], f"{who}_nodeids": [e[1] for e in entries],
           f"{who}_ids": [int(e[2]) for e in entries]}
    weights = [float(np.float32(e[3])) for e in entries]
    if as_double:
        out[f"{who}_weights_as_tensor"] = np.array(weights, "float64")
    else:
        out[f"{who}_weights"] = weights
    return out


def tree_regressor(rs):
    t = random_trees(rs)
    double = rs.rand() < 0.2
    targets = int(rs.choice([1, 1, 2, 3]))
    post = POSTS[rs.randint(5)]
    entries = []
    for tree, node in leaves_of(t):
        ids = range(targets) if rs.rand() < 0.7 or targets == 1 else [rs.randint(targets)]
        scale = 0.4 / len(t.trees) if post == "PROBIT" else 1.0
        entries += [(tree, node, k, abs(rs.rand() * scale) if post == "PROBIT" else rs.randn()) for k in ids]
    attrs = {**nodes_of(t, rs, double), **weights_of(rs, "target", entries, double), "n_targets": targets,
             "aggregate_function": ["SUM", "SUM", "AVERAGE", "MIN", "MAX"][rs.randint(5)], "post_transform": post}
    if rs.rand() < 0.4:
        base = rs.rand(targets) * 0.3 + 0.1
        attrs["base_values_as_tensor" if double else "base_values"] = (
            base.astype("float64") if double else [float(v) for v in base.astype("float32")])
    dtype = "float64" if double else ["float32", "float32", "float64"][rs.randint(3)]
    return model("TreeEnsembleRegressor", attrs, features(rs, rows_of(rs), t.n_feature, dtype), [("y", "float32")],
                 3)


def tree_classifier(rs):
    t = random_trees(rs)
    double = rs.rand() < 0.2
    classes = int(rs.choice([2, 2, 3, 5]))
    positive = rs.rand() < 0.5
    form = rs.randint(4)
    entries = []
    for i, (tree, node) in enumerate(leaves_of(t)):
        if classes == 2:
            ids = [0] if form == 0 else [1] if form == 1 else [0, 1]
        else:
            ids = range(classes) if form < 2 else [tree % classes] if form == 2 else [rs.randint(classes)]
        entries += [(tree, node, k, rs.rand() / len(t.trees) if positive else rs.randn()) for k in ids]
    post = POSTS[rs.randint(4)]  # PROBIT needs probabilities
    labels = list(range(classes)) if rs.rand() < 0.5 else [int(v) for v in rs.permutation(classes) + 3]
    attrs = {**nodes_of(t, rs, double), **weights_of(rs, "class", entries, double), "classlabels_int64s": labels,
             "post_transform": post}
    if rs.rand() < 0.3 and (classes > 2 or form == 0):
        base = rs.randn(classes if classes > 2 else 1)
        attrs["base_values_as_tensor" if double else "base_values"] = (
            base.astype("float64") if double else [float(v) for v in base.astype("float32")])
    dtype = "float64" if double else ["float32", "float32", "int64", "int32"][rs.randint(4)]
    return model("TreeEnsembleClassifier", attrs, features(rs, rows_of(rs), t.n_feature, dtype),
                 [("label", "int64"), ("scores", "float32")], 3)


def tree_ensemble(rs):
    """Version 5: trees of inner nodes and leaves apart, sets of values. onnxruntime takes post_transform 1
    (SOFTMAX) for LOGISTIC and 2 for SOFTMAX, and transforms f64 in f32, so these are not compared."""
    t = random_trees(rs)
    dtype = "float64" if rs.rand() < 0.3 else "float32"
    targets = int(rs.choice([1, 1, 3]))
    a = {k: [] for k in ("featureids", "splits", "modes", "truenodeids", "falsenodeids", "trueleafs", "falseleafs",
                         "missing_value_tracks_true")}
    roots, ids, weights, sets, n = [], [], [], [], 0
    for nodes in t.trees:
        inner = [i for i, v in enumerate(nodes) if v]
        if not inner:  # one leaf: both branches of a node
            nodes, inner = [["BRANCH_LEQ", 0, 0.0, 1, 1, 0], None], [0]
        number = {i: n + k for k, i in enumerate(inner)}
        leaf = {}
        roots.append(n)
        for i in inner:
            mode, feature, value, yes, no, missing = nodes[i]
            for child, where, kind in ((yes, "truenodeids", "trueleafs"), (no, "falsenodeids", "falseleafs")):
                if nodes[child] is None and child not in leaf:
                    leaf[child] = len(ids)
                    ids.append(int(rs.randint(targets)))
                    weights.append(rs.randn())
                a[kind].append(int(nodes[child] is None))
                a[where].append(leaf[child] if nodes[child] is None else number[child])
            mode = MODES.index(mode)
            if rs.rand() < 0.15:
                mode = 6
                sets += list(rs.choice([-1.0, 0.0, 1.0, 2.0], rs.randint(1, 4))) + [np.nan]
            for k, v in (("featureids", feature), ("splits", value), ("modes", [0, 1, 2, 3, 4, 5, 6][mode]),
                         ("missing_value_tracks_true", missing)):
                a[k].append(v)
        n += len(inner)
    attrs = {f"nodes_{k}": v for k, v in a.items()}
    attrs["nodes_splits"] = np.array(attrs["nodes_splits"], dtype)
    attrs["nodes_modes"] = np.array(attrs["nodes_modes"], "uint8")
    attrs.update(tree_roots=roots, leaf_targetids=ids, leaf_weights=np.array(weights, dtype), n_targets=targets,
                 aggregate_function=int(rs.randint(4)), post_transform=0 if dtype == "float64" else int(rs.choice([0, 3])))
    if sets:
        attrs["membership_values"] = np.array(sets, dtype)
    x = features(rs, rows_of(rs), t.n_feature, dtype)
    if sets:  # onnxruntime's sets hold numbers between their members too
        x = np.where(np.isfinite(x), np.round(x), x)
    return model("TreeEnsemble", attrs, x, [("y", dtype)], 5)


# -- Linear models and support vector machines ----------------------------------------------------


def numbers(rs, n, scale=1.0):
    return [float(v) for v in (rs.randn(n) * scale).astype("float32")]


def linear_regressor(rs):
    n, targets = rs.randint(1, 20), int(rs.choice([1, 1, 2, 5]))
    attrs = {"coefficients": numbers(rs, n * targets), "targets": targets, "post_transform": POSTS[rs.randint(3)]}
    if rs.rand() < 0.7:
        attrs["intercepts"] = numbers(rs, targets)
    return model("LinearRegressor", attrs, finite(rs, rows_of(rs), n), [("y", "float32")])


def linear_classifier(rs):
    n, classes = rs.randint(1, 20), int(rs.choice([2, 2, 3, 6]))
    rows = 1 if classes == 2 and rs.rand() < 0.6 else classes
    attrs = {"coefficients": numbers(rs, n * rows), "intercepts": numbers(rs, rows),
             "post_transform": POSTS[rs.randint(4)], "multi_class": int(rs.randint(2)),
             "classlabels_ints": [int(v) for v in rs.permutation(classes) + rs.randint(2)]}
    return model("LinearClassifier", attrs, finite(rs, rows_of(rs), n), [("label", "int64"), ("scores", "float32")])


def kernel_of(rs):
    kind = ["LINEAR", "POLY", "RBF", "SIGMOID"][rs.randint(4)]
    return {"kernel_type": kind, "kernel_params": [float(np.float32(0.1 + rs.rand() * 0.3)),
                                                   float(np.float32(rs.rand())), float(rs.randint(1, 4))]}


def svm_regressor(rs):
    n, supports = rs.randint(1, 12), int(rs.choice([0, 1, 5, 33]))
    attrs = {**kernel_of(rs), "rho": numbers(rs, 1), "n_supports": supports, "one_class": int(rs.rand() < 0.2)}
    if supports:
        attrs.update(support_vectors=numbers(rs, supports * n), coefficients=numbers(rs, supports))
    else:
        attrs["coefficients"] = numbers(rs, n)
        attrs["kernel_type"] = "LINEAR"
    return model("SVMRegressor", attrs, finite(rs, rows_of(rs), n), [("y", "float32")])


def svm_classifier(rs):
    n, classes = rs.randint(1, 12), int(rs.choice([2, 2, 3, 5]))
    per_class = [int(v) for v in rs.randint(1, 9, classes)]
    supports, pairs = sum(per_class), classes * (classes - 1) // 2
    attrs = {**kernel_of(rs), "rho": numbers(rs, pairs), "vectors_per_class": per_class,
             "support_vectors": numbers(rs, supports * n), "coefficients": numbers(rs, supports * (classes - 1)),
             "classlabels_ints": [int(v) for v in rs.permutation(classes) + rs.randint(2)]}
    if rs.rand() < 0.4:
        attrs.update(prob_a=numbers(rs, pairs), prob_b=numbers(rs, pairs))
    elif rs.rand() < 0.3:
        attrs["post_transform"] = "LOGISTIC"
    return model("SVMClassifier", attrs, finite(rs, rows_of(rs), n), [("label", "int64"), ("scores", "float32")])


# -- Preprocessing --------------------------------------------------------------------------------


def scaler(rs):
    n = rs.randint(1, 9)
    attrs = {k: numbers(rs, n if rs.rand() < 0.6 else 1) for k in ("offset", "scale")}
    if len(attrs["offset"]) != len(attrs["scale"]):
        attrs["scale"] = numbers(rs, len(attrs["offset"]))
    dtype = ["float32", "float64", "int64", "int32"][rs.randint(4)]
    return model("Scaler", attrs, features(rs, rows_of(rs), n, dtype), [("y", "float32")])


def normalizer(rs):
    x = finite(rs, rows_of(rs), rs.randint(1, 9))
    x[rs.rand(x.shape[0]) < 0.2] = 0
    return model("Normalizer", {"norm": ["MAX", "L1", "L2"][rs.randint(3)]}, x, [("y", "float32")])


def imputer(rs):
    n = rs.randint(1, 9)
    count = n if rs.rand() < 0.6 else 1
    if rs.rand() < 0.3:
        attrs = {"imputed_value_int64s": [int(v) for v in rs.randint(5, 9, count)], "replaced_value_int64": 1}
        return model("Imputer", attrs, features(rs, rows_of(rs), n, "int64"), [("y", "int64")])
    attrs = {"imputed_value_floats": numbers(rs, count), "replaced_value_float": float(rs.choice([np.nan, 0.25, 0.0]))}
    return model("Imputer", attrs, features(rs, rows_of(rs), n), [("y", "float32")])


def binarizer(rs):
    return model("Binarizer", {"threshold": float(rs.choice([0.0, 0.25, -0.5]))},
                 finite(rs, rows_of(rs), rs.randint(1, 9)).round(2), [("y", "float32")])


def one_hot_encoder(rs):
    cats = [int(v) for v in rs.permutation(7)[:rs.randint(1, 7)] - 2]
    dtype = ["float32", "int64", "float64"][rs.randint(3)]
    zeros = int(rs.rand() < 0.7)
    shape = (rows_of(rs), rs.randint(1, 4))
    x = rs.choice(cats, shape) if not zeros else rs.randint(-3, 6, shape)
    return model("OneHotEncoder", {"cats_int64s": cats, "zeros": zeros}, x.astype(dtype), [("y", "float32")])


def label_encoder(rs):
    n = rs.randint(1, 9)
    float_keys, float_values = rs.rand() < 0.5, rs.rand() < 0.5
    keys = rs.permutation(20)[:n] - 5
    attrs, version = {}, int(rs.choice([2, 4]))
    if float_keys:
        k = (keys * 0.5).astype("float32")
        if version == 4 and rs.rand() < 0.5:  # onnxruntime's version 2 does not find NaN
            k[0] = np.nan
        attrs["keys_floats"] = [float(v) for v in k]
        x = rs.choice(np.append(k, np.float32(77)), (rows_of(rs), 3)).astype("float32")
    else:
        attrs["keys_int64s"] = [int(v) for v in keys]
        x = rs.choice(np.append(keys, 77), (rows_of(rs), 3)).astype("int64")
    values = rs.permutation(50)[:n]
    attrs["values_floats" if float_values else "values_int64s"] = [float(v) if float_values else int(v) for v in values]
    if rs.rand() < 0.5:
        attrs["default_float" if float_values else "default_int64"] = 9.5 if float_values else 9
    return model("LabelEncoder", attrs, x, [("y", "float32" if float_values else "int64")], version)


def array_feature_extractor(rs):
    n = rs.randint(1, 9)
    index = rs.randint(0, n, rs.randint(1, 6)).astype("int64")
    x = features(rs, rows_of(rs), n, ["float32", "int64", "int32"][rs.randint(3)])
    if rs.rand() < 0.3:
        index = index.reshape(1, -1)
    return model("ArrayFeatureExtractor", {}, x, [("y", x.dtype.name)], 1, {"index": index})


def feature_vectorizer(rs):
    rows, g = rows_of(rs), Graph(opset=17, ir=8)
    inputs, widths = {}, []
    for i in range(rs.randint(1, 4)):
        x = finite(rs, rows, rs.randint(1, 5)).astype("float32")
        inputs[f"x{i}"] = x
        widths.append(int(max(1, x.shape[1] + rs.randint(-1, 3))))
        g.inputs.append(Port(f"x{i}", "float32", ["N", x.shape[1]]))
    g.nodes.append(Node("FeatureVectorizer", list(inputs), ["y"], {"inputdimensions": widths}, ML))
    g.outputs.append(Port("y", "float32"))
    return g, inputs


MAKERS = {f.__name__: f for f in (
    tree_regressor, tree_classifier, tree_ensemble, linear_regressor, linear_classifier, svm_regressor,
    svm_classifier, scaler, normalizer, imputer, binarizer, one_hot_encoder, label_encoder,
    array_feature_extractor, feature_vectorizer)}

if __name__ == "__main__":
    operator_cases.main(MAKERS, 10)
