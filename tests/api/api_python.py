#!/usr/bin/env python3
"""The Python package on the examples and on made models, beside onnxruntime.

usage: api_python.py BUILD-FOLDER
"""
import gc
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

BUILD = os.path.abspath(sys.argv.pop(1))
LIBRARY = os.path.join(BUILD, "libweft.so.1")
if any(name in open(LIBRARY, "rb").read() for name in (b"__asan_init", b"__tsan_init", b"__msan_init")):
    oracle.skip("the library has a sanitizer, the interpreter has not")
oracle.need()
os.environ.update(WEFT_LIBRARY=LIBRARY, WEFT_COMMAND=os.path.join(BUILD, "weft"))
sys.path.insert(0, os.path.join(oracle.ROOT, "python"))
import numpy as np
import onnx
import onnxruntime
import weft
import weft.onnxruntime
from onnx import TensorProto, helper

EXAMPLES = os.path.join(oracle.ROOT, "examples")
folder = tempfile.TemporaryDirectory(prefix="weft-python-")


def path(name):
    return os.path.join(folder.name, name)


def save(name, nodes, inputs, outputs):
    """A model of these nodes; ports are (name, type, shape)."""
    port = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [port(*p) for p in inputs], [port(*p) for p in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path(name))
    return path(name)


class Digits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bundle = weft.compile(os.path.join(EXAMPLES, "digits.yaml"), path("digits.weft"), merge="exact", gpu="h100",
                                  batch=[1, 8])
        cls.x = np.load(os.path.join(EXAMPLES, "digits_test.x.npy"))
        logits = np.load(os.path.join(EXAMPLES, "digits_test.logits.npz"))
        cls.want = {"digits": logits["digits_cnn"], "parity": logits["digits_parity"], "size": logits["digits_size"],
                    "digits-attn": logits["digits_attn"]}

    def test_models(self):
        self.assertEqual(list(self.bundle.models), ["digits", "parity", "size", "digits-attn"])
        model = self.bundle.models["digits"]
        self.assertEqual(model.inputs[0].shape, ("batch", 1, 8, 8))
        self.assertEqual(model.inputs[0].dtype, np.float32)
        self.assertEqual(model.batches, (1, 8))
        h100 = [e for e in model.estimates if e.device == "h100"]
        self.assertTrue(h100 and all(e.time_us > 0 and e.source for e in h100))
        self.assertEqual(self.bundle.target, "cpu")
        self.assertIsNone(self.bundle.plan)
        self.assertRegex(weft.__version__, r"^\d+\.\d+\.\d+$")

    def test_answers(self):
        for name, want in self.want.items():
            for n in (1, 3, 8, 450):
                got = self.bundle.run(name, {"image": self.x[:n]})["logits"]
                self.assertEqual(got.shape, want[:n].shape)
                self.assertLess(np.abs(got - want[:n]).max() / np.abs(want).max(), 1e-4)

    def test_arrays(self):
        session = self.bundle.session("digits")
        x = self.x[:6]
        want = session.run({"image": x})["logits"]
        self.assertTrue(want.flags.owndata and want.flags.writeable)
        own = np.full((6, 10), 7, "f4")
        self.assertIs(session.run({"image": x}, {"logits": own})["logits"], own)
        np.testing.assert_array_equal(own, want)
        strided = np.repeat(x, 2, axis=0)[::2]
        turned = np.asfortranarray(x)
        frozen = x.copy()
        frozen.setflags(write=False)
        for a in (strided, turned, frozen):
            np.testing.assert_array_equal(session.run({"image": a})["logits"], want)
        # Earlier results stay when the session runs again.
        session.run({"image": x[::-1].copy()})
        np.testing.assert_array_equal(own, want)

        class Tensor:  # another library's
            def __dlpack__(self, **options):
                return x.__dlpack__(**options)

            def __dlpack_device__(self):
                return x.__dlpack_device__()

        np.testing.assert_array_equal(session.run({"image": Tensor()})["logits"], want)

    def test_inputs_are_not_copied(self):
        session = self.bundle.session("digits")
        x = self.x[:2].copy()
        self.assertIs(session._take([x])[0], x)

    def test_wrong(self):
        session = self.bundle.session("digits")
        x = self.x[:2]
        wrong = [
            ({"picture": x}, {}, "picture; it has image"), ({}, {}, "image is missing"),
            ({"image": x.astype("f8")}, {}, "float64"), ({"image": x.astype(">f4")}, {}, ">f4"),
            ({"image": x[:, :, :7]}, {}, "image"), ({"image": x[0]}, {}, "image"),
            ({"image": np.float32(1)}, {}, "image"), ({"image": np.zeros((1,) * 9, "f4")}, {}, "9 dims"),
            ({"image": x}, {"logits": np.zeros((2, 9), "f4")}, "(2, 10)"),
            ({"image": x}, {"logits": np.zeros((2, 10), "f8")}, "float32"),
            ({"image": x}, {"logits": np.zeros((10, 2), "f4").T}, "contiguous"),
            ({"image": x}, {"scores": np.zeros((2, 10), "f4")}, "scores"),
        ]
        for inputs, outputs, text in wrong:
            with self.assertRaises(weft.Error) as caught:
                session.run(inputs, outputs)
            self.assertIn(text, str(caught.exception))
            self.assertEqual(caught.exception.status, "input")
        for call in (lambda: self.bundle.session(), lambda: self.bundle.session("none"),
                     lambda: self.bundle.joint(["digits", "digits"]), lambda: weft.Bundle(b"no bundle"),
                     lambda: weft.Bundle("no-such-file.weft"), lambda: weft.Bundle(path("digits.weft"), driver="abacus")):
            self.assertRaises(weft.Error, call)

    def test_joint(self):
        for names in (["digits", "parity", "size"], ["size", "digits"]):
            session = self.bundle.joint(names)
            self.assertIsNotNone(session.joint_program)
            x = {name: {"image": self.x[:k + 1]} for k, name in enumerate(names)}
            got = session.run(x)
            for name in names:
                want = self.bundle.run(name, x[name])["logits"]
                np.testing.assert_array_equal(got[name]["logits"], want)
            np.testing.assert_array_equal(session.run_async(x).result(60)[names[0]]["logits"],
                                          got[names[0]]["logits"])
            self.assertRaises(weft.Error, session.run, {names[0]: x[names[0]]})
            self.assertRaises(weft.Error, session.run, {**x, "digits-attn": x[names[0]]})

    def test_threads(self):
        shared, errors = self.bundle.session("digits"), []

        def use(k):
            own = self.bundle.session("parity")
            for i in range(20):
                name, session = ("digits", shared) if i % 2 else ("parity", own)
                got = session.run({"image": self.x[k:k + 4]})["logits"]
                if np.abs(got - self.want[name][k:k + 4]).max() > 1e-3:
                    errors.append((k, i))

        threads = [threading.Thread(target=use, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])
        futures = [shared.run_async({"image": self.x[k:k + 1]}) for k in range(30)]
        for k, future in enumerate(futures):
            np.testing.assert_allclose(future.result(60)["logits"], self.want["digits"][k:k + 1], atol=1e-3)
        with self.assertRaises(weft.Error):
            shared.run_async({"image": self.x[:1, :, :5]}).result(60)

    def test_life(self):
        with open(path("digits.weft"), "rb") as f:
            bundle = weft.Bundle(f.read(), threads=1)
        session = bundle.session("size")
        self.assertIn("digits", repr(bundle))
        self.assertRaisesRegex(TypeError, "open it in each process", pickle.dumps, bundle)
        del bundle
        gc.collect()
        got = session.run({"image": self.x[:3]})["logits"]
        self.assertLess(np.abs(got - self.want["size"][:3]).max(), 1e-3)

    def test_kernels(self):
        session = self.bundle.session("digits")
        session.watch()
        for _ in range(3):
            session.run({"image": self.x[:8]})
        kernels = session.kernels()
        self.assertTrue(sum(k.time_us for k in kernels) > 0 and all(k.model == "digits" for k in kernels))


class Command(unittest.TestCase):
    def test_estimate(self):
        got = weft.estimate(os.path.join(EXAMPLES, "digits_cnn.onnx"), gpu="h100", slice="1g.10gb", batch=[1, 8])
        self.assertEqual(got["device"], "h100")
        self.assertTrue(got["models"])
        with self.assertRaises(weft.Error) as caught:
            weft.estimate(os.path.join(EXAMPLES, "digits_cnn.onnx"), gpu="abacus")
        self.assertIn("abacus", str(caught.exception))

    def test_plan(self):
        got = weft.plan(os.path.join(EXAMPLES, "digits.yaml"), os.path.join(EXAMPLES, "fleet.yaml"))
        self.assertTrue(got["placements"])
        with self.assertRaises(weft.Error) as caught:
            weft.plan(os.path.join(EXAMPLES, "digits.yaml"), os.path.join(EXAMPLES, "fleet.yaml"), slo="digits=1us")
        self.assertEqual(caught.exception.status, "infeasible")


class Shim(unittest.TestCase):
    """A script for onnxruntime whose import is changed: equal descriptions, equal answers."""

    def compare(self, model, feeds):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours = weft.onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        for mine, other in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
            self.assertEqual([(a.name, a.type) for a in mine], [(a.name, a.type) for a in other])
        self.assertEqual([a.shape for a in ours.get_inputs()], [a.shape for a in theirs.get_inputs()])
        for feed in feeds:
            for got, want in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
                self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
                if got.size:
                    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * max(1, np.abs(want).max()))
        return ours, theirs

    def test_examples(self):
        rng = np.random.default_rng(7)
        for name in ("digits_cnn", "digits_parity", "digits_size", "digits_attn"):
            feeds = [{"image": rng.uniform(0, 16, (n, 1, 8, 8)).astype("f4")} for n in (1, 5, 32)]
            self.compare(os.path.join(EXAMPLES, name + ".onnx"), feeds)

    def test_sizes_that_data_tells(self):
        model = save("nonzero.onnx", [helper.make_node("NonZero", ["x"], ["where"]),
                                      helper.make_node("Mul", ["x", "x"], ["square"])],
                     [("x", TensorProto.FLOAT, ["n", 4])],
                     [("where", TensorProto.INT64, [2, None]), ("square", TensorProto.FLOAT, ["n", 4])])
        rng = np.random.default_rng(3)
        feeds = [{"x": (rng.random((n, 4)) > 0.6).astype("f4")} for n in (1, 2, 7)] + [{"x": np.zeros((2, 4), "f4")}]
        self.compare(model, feeds)

    def test_types(self):
        for onnx_type, dtype in ((TensorProto.INT64, "i8"), (TensorProto.DOUBLE, "f8"), (TensorProto.FLOAT16, "f2"),
                                 (TensorProto.INT32, "i4")):
            model = save("add.onnx", [helper.make_node("Add", ["a", "b"], ["c"])],
                         [("a", onnx_type, ["n", 3]), ("b", onnx_type, [3])], [("c", onnx_type, ["n", 3])])
            a = (np.arange(12).reshape(4, 3) - 5).astype(dtype)
            self.compare(model, [{"a": a, "b": a[1]}])

    def test_interface(self):
        model = os.path.join(EXAMPLES, "digits_cnn.onnx")
        options = weft.onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        with self.assertWarnsRegex(UserWarning, "graph_optimization_level"):
            options.graph_optimization_level = 99
        with open(model, "rb") as f, self.assertWarnsRegex(UserWarning, "CUDAExecutionProvider"):
            session = weft.onnxruntime.InferenceSession(f.read(), options, ["CUDAExecutionProvider",
                                                                            "CPUExecutionProvider"])
        self.assertEqual(session.get_providers(), ["CPUExecutionProvider"])
        image = [[[[1.0] * 8] * 8]]
        self.assertEqual(session.run(["logits"], {"image": image})[0].shape, (1, 10))
        self.assertRaises(weft.Error, session.run, ["nothing"], {"image": image})
        self.assertRaises(weft.Error, session.run, None, {"picture": image})
        self.assertRaises(NotImplementedError, lambda: session.io_binding())


class Types(unittest.TestCase):
    def test_hints(self):
        """Every public function has hints for all of its arguments."""
        import inspect
        for name in weft.__all__:
            thing = getattr(weft, name)
            calls = [thing] if inspect.isfunction(thing) else [
                f for n, f in inspect.getmembers(thing, inspect.isfunction) if not n.startswith("_")]
            for call in calls:
                hints = call.__annotations__
                missing = [p for p in inspect.signature(call).parameters if p not in hints and p != "self"]
                self.assertFalse(missing or "return" not in hints, f"{name}: {call.__name__}: {missing}")

    def test_no_library(self):
        done = subprocess.run([sys.executable, "-c", "import weft"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, WEFT_LIBRARY="/no/libweft.so", PYTHONPATH=os.pathsep.join(sys.path)))
        self.assertIn("/no/libweft.so", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=0)
