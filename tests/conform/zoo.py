#!/usr/bin/env python3
"""The architectures of torchvision beside onnxruntime: classifiers, segmentation, detection, video, optical flow.

usage: zoo.py --export DIR [NAME...]     writes NAME.onnx with random weights; for a Python that has torch and torchvision
                                         (Debian's python3-torchvision)
       zoo.py WEFT DIR [NAME...]         compiles each, runs it at two sizes, and compares all results

Detectors with random weights give many boxes of nearly equal score, whose order rounding decides: a box counts as found if
one of the same label, with nearly its score, lies within half a pixel.
"""
import glob
import os
import sys

CLASSIFIERS = """alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_b3 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5
    mnasnet1_3 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d
    shufflenet_v2_x0_5 shufflenet_v2_x1_5 squeezenet1_0 swin_t vgg11_bn wide_resnet50_2""".split()
SEGMENTATION = "deeplabv3_mobilenet_v3_large deeplabv3_resnet50 fcn_resnet50 lraspp_mobilenet_v3_large".split()
VIDEO = "r3d_18 mc3_18 r2plus1d_18 mvit_v1_b mvit_v2_s".split()
DETECTION = """fasterrcnn_resnet50_fpn fasterrcnn_resnet50_fpn_v2 fasterrcnn_mobilenet_v3_large_320_fpn maskrcnn_resnet50_fpn
    keypointrcnn_resnet50_fpn retinanet_resnet50_fpn retinanet_resnet50_fpn_v2 fcos_resnet50_fpn ssd300_vgg16
    ssdlite320_mobilenet_v3_large""".split()
FLOW = ["raft_small"]
FIXED = {"inception_v3": 299, "maxvit_t": 224, "swin_t": 224, "alexnet": 224, "vgg11_bn": 224}  # sizes that the export keeps
TOLERANCE = 1e-4  # of the largest expected magnitude
PIXELS, SCORE = 0.5, 2e-3


def make(name):
    """A model, its example inputs, their names and open sizes."""
    import torch
    import torchvision.models as zoo
    room = next(r for r, names in ((zoo, CLASSIFIERS), (zoo.segmentation, SEGMENTATION), (zoo.video, VIDEO),
                                   (zoo.detection, DETECTION), (zoo.optical_flow, FLOW)) if name in names)
    options = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options.update(aux_logits=False, init_weights=False)
    if room in (zoo.segmentation, zoo.detection):
        options["weights_backbone"] = None
    if room is zoo.detection and "ssd" not in name:
        options.update(min_size=128, max_size=192)
    model = getattr(room, name)(**options)
    if room is zoo.detection:
        return model, ([torch.rand(3, 128, 160)],), {"x": {1: "H", 2: "W"}}
    if room is zoo.optical_flow:
        return model, (torch.randn(1, 3, 128, 160), torch.randn(1, 3, 128, 160)), {"x": {}, "x2": {}}
    if room is zoo.video:
        side = 224 if "mvit" in name else 112
        return model, (torch.randn(1, 3, 16, side, side),), {"x": {0: "N"}}
    side = FIXED.get(name)
    shape = (2, 3, side, side) if side else (2, 3, 96, 128)
    return model, (torch.randn(*shape),), {"x": {0: "N"} if side else {0: "N", 2: "H", 3: "W"}}


def export(folder, names):
    import torch
    torch.manual_seed(0)
    os.makedirs(folder, exist_ok=True)
    for name in names or CLASSIFIERS + SEGMENTATION + VIDEO + DETECTION + FLOW:
        model, example, axes = make(name)
        model.eval()
        for part in model.modules():
            if isinstance(part, (torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)):
                part.running_mean.normal_(0, 0.1)
                part.running_var.uniform_(0.5, 1.5)
        try:
            with torch.no_grad():
                torch.onnx.export(model, example, os.path.join(folder, name + ".onnx"), opset_version=16, input_names=list(axes),
                                  dynamic_axes={k: v for k, v in axes.items() if v})
            print(name, flush=True)
        except Exception as e:  # torch's exporter has no common class
            print(f"{name}: not exported: {str(e).splitlines()[0]}", flush=True)


def differences(np, got, want, is_detector):
    """What differs, in words; empty: nothing."""
    if any(g.shape != w.shape for g, w in zip(got, want)):
        return f"shapes {[g.shape for g in got]}, expected {[w.shape for w in want]}"
    if not is_detector:
        worst = max(float(np.abs(g.astype(np.float64) - w).max(initial=0)) / max(1e-6, float(np.abs(w).max(initial=0)))
                    for g, w in zip(got, want))
        return "" if worst <= TOLERANCE else f"{worst:.2g} of the scale"
    label = next(i for i, w in enumerate(want) if w.dtype == np.int64 and w.ndim == 1)
    score = next(i for i, w in enumerate(want) if w.dtype == np.float32 and w.ndim == 1)
    free, lost = set(range(len(got[0]))), 0
    for k, box in enumerate(want[0]):
        like = [(float(np.abs(box - got[0][i]).max()), i) for i in free
                if got[label][i] == want[label][k] and abs(got[score][i] - want[score][k]) < SCORE]
        if like and min(like)[0] <= PIXELS:
            free.remove(min(like)[1])
        else:
            lost += 1
    # At a threshold, rounding decides whether a box is there.
    return "" if lost <= max(1, len(want[0]) // 50) else f"{lost} of {len(want[0])} boxes"


def compare(weft, folder, names):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
    import oracle
    oracle.need()
    import tempfile
    import numpy as np
    wrong = runs = 0
    paths = sorted(glob.glob(os.path.join(folder, "*.onnx")))
    with tempfile.TemporaryDirectory() as work:
        for path in paths:
            name = os.path.splitext(os.path.basename(path))[0]
            if names and name not in names:
                continue
            session, bundle, rs = oracle.session(path, optimise=True), os.path.join(work, "zoo.weft"), np.random.default_rng(0)
            oracle.weft(weft, "compile", path, "-o", bundle)
            outputs = [o.name for o in session.get_outputs()]
            for sizes in ({"N": 1, "H": 128, "W": 160}, {"N": 3, "H": 97, "W": 130}):
                feeds = {i.name: rs.random([d if isinstance(d, int) else sizes[d] for d in i.shape], np.float32)
                         for i in session.get_inputs()}
                want = session.run(outputs, feeds)
                got = oracle.run_bundle(weft, bundle, feeds, outputs, work)
                text = differences(np, [got[o] for o in outputs], want, name in DETECTION)
                print(f"{name} {sizes}: {text or 'right'}", flush=True)
                wrong, runs = wrong + bool(text), runs + 1
    print(f"{runs} runs, {wrong} wrong")
    return 1 if wrong or not runs else 0


if len(sys.argv) < 3:
    sys.exit(__doc__)
if sys.argv[1] == "--export":
    export(sys.argv[2], sys.argv[3:])
else:
    sys.exit(compare(os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]))
