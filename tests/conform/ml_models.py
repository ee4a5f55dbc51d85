#!/usr/bin/env python3
"""Models of scikit-learn, LightGBM and XGBoost, trained here on random data and converted by skl2onnx and
onnxmltools, compared with onnxruntime on other random rows: one, few and many, some with NaN.

usage: ml_models.py WORKER [--only NAME] [--save DIR]
"""
import argparse
import os
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need("ml_oracles.txt")
import numpy as np

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")
import lightgbm
import onnx.helper
import xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn import (calibration, cluster, compose, decomposition, discriminant_analysis, ensemble, feature_selection,
                     gaussian_process, impute, linear_model, mixture, multiclass, multioutput, naive_bayes, neighbors,
                     neural_network, pipeline, preprocessing, random_projection, svm, tree)

from worker import Died, Refused, Worker

FEATURES, ROWS = 10, 400
SIZES = (1, 2, 7, 33, 300)
# Trees whose models say where NaN goes.
NAN = ("hist_", "lightgbm_", "xgboost_")
TARGETS = ("two", "four", "real")  # classes, classes, numbers


def plain(value):
    """Lists of numpy's numbers as Python's: the converters mix both, which onnx refuses."""
    if isinstance(value, (list, tuple)):
        value = [v.item() if isinstance(v, np.generic) else v for v in value]
        return [int(v) if isinstance(v, bool) else v for v in value]
    return value


make_attribute = onnx.helper.make_attribute
onnx.helper.make_attribute = lambda key, value, *rest, **more: make_attribute(key, plain(value), *rest, **more)


def chain(*steps):
    return pipeline.make_pipeline(*steps)


def columns():
    numbers = ("numbers", preprocessing.StandardScaler(), list(range(FEATURES - 2)))
    categories = ("categories", preprocessing.OneHotEncoder(handle_unknown="ignore"), [FEATURES - 2, FEATURES - 1])
    return compose.ColumnTransformer([numbers, categories])


# Kinds of models, each with its variants: name -> (model, target or None).
KINDS = {
    "linear_regression": {"linear": (linear_model.LinearRegression(), "real"), "ridge": (linear_model.Ridge(), "real")},
    "logistic_regression": {"two": (linear_model.LogisticRegression(), "two"),
                            "four": (linear_model.LogisticRegression(), "four")},
    "svm": {"two": (svm.SVC(), "two"), "four": (svm.SVC(kernel="poly"), "four"),
            "linear": (svm.LinearSVC(), "four"), "regression": (svm.SVR(), "real"), "one_class": (svm.OneClassSVM(), None)},
    "decision_tree": {"two": (tree.DecisionTreeClassifier(max_depth=6), "two"),
                      "four": (tree.DecisionTreeClassifier(), "four"),
                      "regression": (tree.DecisionTreeRegressor(), "real")},
    "random_forest": {"two": (ensemble.RandomForestClassifier(20), "two"),
                      "four": (ensemble.RandomForestClassifier(20), "four"),
                      "regression": (ensemble.RandomForestRegressor(20), "real")},
    "extra_trees": {"four": (ensemble.ExtraTreesClassifier(20), "four"),
                    "regression": (ensemble.ExtraTreesRegressor(20), "real")},
    "gradient_boosting": {"two": (ensemble.GradientBoostingClassifier(n_estimators=20), "two"),
                          "four": (ensemble.GradientBoostingClassifier(n_estimators=20), "four"),
                          "regression": (ensemble.GradientBoostingRegressor(n_estimators=20), "real")},
    "hist_gradient_boosting": {"two": (ensemble.HistGradientBoostingClassifier(max_iter=20), "two"),
                               "four": (ensemble.HistGradientBoostingClassifier(max_iter=20), "four"),
                               "regression": (ensemble.HistGradientBoostingRegressor(max_iter=20), "real")},
    "neighbours": {"four": (neighbors.KNeighborsClassifier(), "four"),
                   "regression": (neighbors.KNeighborsRegressor(), "real")},
    "naive_bayes": {"gauss": (naive_bayes.GaussianNB(), "four"), "bernoulli": (naive_bayes.BernoulliNB(), "four"),
                    "multinomial": (chain(preprocessing.MinMaxScaler(clip=True), naive_bayes.MultinomialNB()), "four")},
    "neural_network": {"two": (neural_network.MLPClassifier((20,), max_iter=50), "two"),
                       "four": (neural_network.MLPClassifier((20, 10), max_iter=50), "four"),
                       "regression": (neural_network.MLPRegressor(hidden_layer_sizes=(20,), max_iter=50), "real")},
    "pipeline": {"imputer": (chain(impute.SimpleImputer(), preprocessing.StandardScaler(),
                                   linear_model.LogisticRegression()), "four"),
                 "one_hot": (chain(columns(), linear_model.LogisticRegression()), "four"),
                 "polynomial": (chain(preprocessing.Normalizer(), preprocessing.RobustScaler(),
                                      preprocessing.PolynomialFeatures(2), linear_model.Ridge()), "real"),
                 "binarizer": (chain(preprocessing.Binarizer(), tree.DecisionTreeClassifier()), "two")},
    "isolation_forest": {"20": (ensemble.IsolationForest(n_estimators=20), None)},
    "meta": {"ada_boost": (ensemble.AdaBoostClassifier(n_estimators=10), "four"),
             "bagging": (ensemble.BaggingClassifier(n_estimators=5), "four")},
    "reduction": {"k_means": (cluster.KMeans(4, n_init=2), None), "pca": (decomposition.PCA(4), None),
                  "discriminant": (discriminant_analysis.LinearDiscriminantAnalysis(), "four")},
    "gaussian_process": {"rbf": (gaussian_process.GaussianProcessRegressor(), "real"),
                         "matern": (gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.Matern(nu=1.5)), "real"),
                         "rational": (gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RationalQuadratic()),
                                      "real")},
    "mixture": {"full": (mixture.GaussianMixture(3), None),
                "diagonal": (mixture.GaussianMixture(3, covariance_type="diag"), None)},
    "transformer": {"bins": (preprocessing.KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"), None),
                    "power": (preprocessing.PowerTransformer(), None), "best": (feature_selection.SelectKBest(k=3), "two"),
                    "kernel_pca": (decomposition.KernelPCA(3, kernel="rbf"), None)},
    "composed": {"calibrated": (calibration.CalibratedClassifierCV(tree.DecisionTreeClassifier(max_depth=4), method="isotonic",
                                                                   cv=2), "four"),
                 "one_to_rest": (multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), "four"),
                 "one_to_one": (multiclass.OneVsOneClassifier(linear_model.LogisticRegression()), "four"),
                 "stacked": (ensemble.StackingClassifier([("line", linear_model.LogisticRegression()),
                                                          ("tree", tree.DecisionTreeClassifier(max_depth=3))]), "four")},
    "neighbourhood": {"outliers": (neighbors.LocalOutlierFactor(novelty=True), None),
                      "components": (neighbors.NeighborhoodComponentsAnalysis(3, max_iter=5), "four")},
    "vote": {"soft": (ensemble.VotingClassifier([("line", linear_model.LogisticRegression()), ("bayes", naive_bayes.GaussianNB())],
                                                voting="soft", flatten_transform=False), "four"),
             "hard": (ensemble.VotingClassifier([("line", linear_model.LogisticRegression()),
                                                 ("tree", tree.DecisionTreeClassifier(max_depth=3))],
                                                flatten_transform=False), "four"),
             "regression": (ensemble.VotingRegressor([("line", linear_model.Ridge()),
                                                      ("tree", tree.DecisionTreeRegressor(max_depth=3))]), "real"),
             "stacked": (ensemble.StackingRegressor([("line", linear_model.Ridge()),
                                                     ("tree", tree.DecisionTreeRegressor(max_depth=3))]), "real")},
    "linear": {"lasso": (linear_model.Lasso(0.1), "real"), "huber": (linear_model.HuberRegressor(), "real"),
               "bayesian": (linear_model.BayesianRidge(), "real"), "quantile": (linear_model.QuantileRegressor(alpha=0.01), "real"),
               "sgd": (linear_model.SGDClassifier(loss="modified_huber"), "four"), "perceptron": (linear_model.Perceptron(), "four"),
               "ridge": (linear_model.RidgeClassifier(), "four"), "ransac": (linear_model.RANSACRegressor(), "real")},
    "svm_more": {"probability": (svm.NuSVC(nu=0.2, probability=True), "four"), "sigmoid": (svm.SVC(kernel="sigmoid"), "four"),
                 "one_to_rest": (svm.SVC(decision_function_shape="ovr", break_ties=True), "four"), "linear": (svm.LinearSVR(), "real")},
    "bayes_more": {"complement": (chain(preprocessing.MinMaxScaler(clip=True), naive_bayes.ComplementNB()), "four"),
                   "quadratic": (discriminant_analysis.QuadraticDiscriminantAnalysis(), "four")},
    "ensemble_more": {"bagging": (ensemble.BaggingRegressor(n_estimators=5, max_features=0.5), "real"),
                      "boosted": (ensemble.AdaBoostRegressor(n_estimators=10), "real"),
                      "huber": (ensemble.GradientBoostingRegressor(loss="huber", n_estimators=20), "real"),
                      "poisson": (ensemble.HistGradientBoostingRegressor(max_iter=20, loss="absolute_error"), "real"),
                      "several": (multioutput.MultiOutputRegressor(tree.DecisionTreeRegressor(max_depth=4)), "pair"),
                      "forest": (ensemble.RandomForestRegressor(10), "pair")},
    "preparation": {"max_abs": (preprocessing.MaxAbsScaler(), None), "ordinal": (preprocessing.OrdinalEncoder(), None),
                    "quantile": (preprocessing.QuantileTransformer(n_quantiles=20), None),
                    "splines": (preprocessing.FunctionTransformer(), None), "variance": (feature_selection.VarianceThreshold(0.1), None),
                    "eliminated": (feature_selection.RFE(linear_model.Ridge(), n_features_to_select=4), "real"),
                    "selected": (feature_selection.SelectFromModel(linear_model.Lasso(0.1)), "real"),
                    "svd": (decomposition.TruncatedSVD(3), None),
                    "projection": (random_projection.GaussianRandomProjection(4), None),
                    "batches": (cluster.MiniBatchKMeans(4, n_init=2), None), "white": (decomposition.PCA(4, whiten=True), None)},
    "columns": {"mixed": (chain(compose.ColumnTransformer([("a", chain(impute.SimpleImputer(), preprocessing.StandardScaler()), [0, 1, 2]),
                                                           ("b", "passthrough", [3, 4]), ("c", preprocessing.Normalizer(), [5, 6, 7])]),
                                ensemble.HistGradientBoostingClassifier(max_iter=10)), "two"),
                "union": (chain(pipeline.FeatureUnion([("scaled", preprocessing.StandardScaler()), ("reduced", decomposition.PCA(3))]),
                                linear_model.LogisticRegression()), "four")},
    "neighbours_more": {"weighted": (neighbors.KNeighborsClassifier(7, weights="distance"), "four"),
                        "manhattan": (neighbors.KNeighborsRegressor(3, metric="manhattan"), "real")},
    "lightgbm": {"two": (lightgbm.LGBMClassifier(n_estimators=20, verbose=-1), "two"),
                 "four": (lightgbm.LGBMClassifier(n_estimators=20, verbose=-1), "four"),
                 "regression": (lightgbm.LGBMRegressor(n_estimators=20, verbose=-1), "real"),
                 "forest": (lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, boosting_type="rf", bagging_freq=1,
                                                    bagging_fraction=0.8), "two")},
    "xgboost": {"two": (xgboost.XGBClassifier(n_estimators=20), "two"),
                "four": (xgboost.XGBClassifier(n_estimators=20), "four"),
                "regression": (xgboost.XGBRegressor(n_estimators=20), "real")},
}


def data(name, rows, seed):
    rs = np.random.RandomState(seed)
    x = rs.randn(rows, FEATURES).astype(np.float32)
    if name == "pipeline_one_hot":
        x[:, -2:] = rs.randint(0, 4, (rows, 2))
    return x


def targets(x):
    rs = np.random.RandomState(7)
    score = x @ rs.randn(FEATURES) + 0.3 * rs.randn(len(x))
    return {"two": (score > 0).astype(int), "four": np.digitize(score, [-2, 0, 2]),
            "real": score.astype(np.float32), "pair": np.stack([score, np.abs(score)], 1)}


def convert(name, model, target):
    """Trains the model and returns it as ONNX bytes."""
    x = data(name, ROWS, 0)
    for part in [model] + [s for _, s in getattr(model, "steps", [])]:
        if "random_state" in part.get_params():
            part.set_params(random_state=0)
    model.fit(x, targets(x)[target] if target else None)
    shape = [("x", FloatTensorType([None, FEATURES]))]
    if name.startswith("lightgbm_"):
        made = convert_lightgbm(model, initial_types=shape, target_opset=15)
    elif name.startswith("xgboost_"):
        made = convert_xgboost(model, initial_types=shape, target_opset=15)
    else:
        made = to_onnx(model, x[:1], target_opset={"": 18, "ai.onnx.ml": 3})
    return made.SerializeToString()


def as_tensor(value):
    """Weft gives the maps of ZipMap as a matrix."""
    if isinstance(value, list):
        return np.array([list(row.values()) for row in value], np.float32)
    return value


def check(worker, name, path):
    """None, or why the answers differ."""
    session = oracle.session(path)
    worker.compile([path])
    names = [o.name for o in session.get_outputs()]
    for rows in SIZES:
        x = data(name, rows, rows)
        if name.startswith(NAN) or name == "pipeline_imputer":
            x[np.random.RandomState(rows).rand(*x.shape) < 0.1] = np.nan
        want = [as_tensor(v) for v in session.run(None, {session.get_inputs()[0].name: x})]
        text = oracle.outputs_differ(dict(zip(names, worker.run([x]))), dict(zip(names, want)))
        if text:
            return f"{rows} rows: {text}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--only", help="a kind")
    parser.add_argument("--save", help="folder for the models")
    options = parser.parse_args()
    worker, right, wrong, refused = Worker(options.worker), [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for kind, variants in KINDS.items():
            if options.only and options.only != kind:
                continue
            before = len(wrong) + len(refused)
            for variant, (model, target) in variants.items():
                name = f"{kind}_{variant}"
                path = os.path.join(options.save or folder, name + ".onnx")
                with open(path, "wb") as f:
                    f.write(convert(name, model, target))
                try:
                    text = check(worker, name, path)
                except (Refused, Died) as e:
                    refused.append(name)
                    print(f"{name}: {type(e).__name__}: {e}")
                    continue
                if text:
                    wrong.append(name)
                    print(f"{name}: {text}")
            if len(wrong) + len(refused) == before:
                right.append(kind)
    worker.close()
    print(f"{len(right)} of {len(KINDS)} kinds right, {len(wrong)} models wrong, {len(refused)} refused")
    least = 0 if options.only else len(KINDS) - 2
    sys.exit(1 if wrong or len(right) < least else 0)


if __name__ == "__main__":
    main()
