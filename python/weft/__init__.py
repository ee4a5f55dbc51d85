"""Weft: sets of ONNX models compiled into bundles, estimated, planned and run.

    bundle = weft.compile("digits.yaml", "digits.weft")     # or weft.Bundle("digits.weft")
    session = bundle.session("digits")
    logits = session.run({"image": images})["logits"]

weft.onnxruntime has the part of onnxruntime's interface that most scripts use.
"""
from . import _native
from ._bundle import Bundle, Error, Estimate, JointSession, Kernel, Model, Session, Tensor
from ._command import compile, estimate, plan

__version__: str = _native.lib.weft_version().decode()
__all__ = ["Bundle", "Error", "Estimate", "JointSession", "Kernel", "Model", "Session", "Tensor", "compile",
           "estimate", "plan"]
