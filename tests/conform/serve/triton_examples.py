# needs: numpy
"""The example programs of Triton's Python client as they are, against a repository with the models that they ask for, by
hand: WEFT_TRITON_EXAMPLES names their folder (src/python/examples of its sources), WEFT_CLIENTS the folder of tritonclient.
Those of PASS must end with exit code 0 and without a word of a failure; how the others end is printed. The server has the
ports 8000 and 8001, which some of them know (`unshare -rn` gives it a network of its own)."""
import os
import subprocess
import sys

from serving import Graph, Node, Port, Server, skip

examples = os.environ.get("WEFT_TRITON_EXAMPLES", "")
if not os.path.isdir(examples):
    skip("no WEFT_TRITON_EXAMPLES")

# docs/triton.md has this list.
PASS = {
    "simple_http_infer_client", "simple_http_async_infer_client", "simple_http_aio_infer_client", "simple_http_shm_client",
    "simple_http_health_metadata", "simple_grpc_infer_client", "simple_grpc_async_infer_client", "simple_grpc_aio_infer_client",
    "simple_grpc_keepalive_client", "simple_grpc_custom_args_client", "simple_grpc_shm_client", "simple_grpc_health_metadata",
    "reuse_infer_objects_client", "grpc_client", "grpc_explicit_int_content_client", "grpc_explicit_int8_content_client",
    "simple_grpc_aio_keepalive_client", "simple_grpc_aio_custom_args_client", "simple_http_aio_shm_client",
    "simple_grpc_aio_shm_client", "simple_http_aio_health_metadata", "simple_grpc_aio_health_metadata",
    "memory_growth_test", "image_client", "grpc_image_client", "simple_http_model_control", "simple_http_aio_model_control",
    "simple_grpc_model_control", "simple_grpc_aio_model_control",
}
# What examples print where they do not check their exit code.
WORDS = {"grpc_explicit_int_content_client": "PASS: explicit int"}


def add_model(name, graph, more=""):
    folder = f"{repository}/{name}/1"
    os.makedirs(folder)
    graph.save(f"{folder}/model.onnx")
    with open(f"{repository}/{name}/config.pbtxt", "w", encoding="utf-8") as f:
        f.write(f'name: "{name}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\n{more}')


def add_simple(name, dtype):
    """Sum and difference of two rows of 16 numbers."""
    g = Graph(opset=17)
    g.inputs += [Port(f"INPUT{i}", dtype, ["batch", 16]) for i in (0, 1)]
    g.nodes += [Node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"], {}), Node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"], {})]
    g.outputs += [Port(f"OUTPUT{i}", dtype) for i in (0, 1)]
    add_model(name, g)


def add_identity(name):
    g = Graph(opset=17)
    g.inputs.append(Port("INPUT0", "int32", ["batch", 16]))
    g.nodes.append(Node("Identity", ["INPUT0"], ["OUTPUT0"], {}))
    g.outputs.append(Port("OUTPUT0", "int32"))
    add_model(name, g)


def add_image(name):
    """Names and sizes of a classifier of images."""
    g = Graph(opset=17)
    g.inputs.append(Port("input", "float32", ["batch", 299, 299, 3]))
    g.nodes.append(Node("GlobalAveragePool", ["input"], ["InceptionV3/Predictions/Softmax"], {}))
    g.outputs.append(Port("InceptionV3/Predictions/Softmax", "float32"))
    add_model(name, g, """input { name: "input" data_type: TYPE_FP32 format: FORMAT_NHWC dims: [299, 299, 3] }
output { name: "InceptionV3/Predictions/Softmax" data_type: TYPE_FP32 dims: [299, 1, 1] label_filename: "labels.txt" }
""")
    with open(f"{repository}/{name}/labels.txt", "w", encoding="utf-8") as f:
        f.writelines(f"class {i}\n" for i in range(299))


def run(name, server):
    port = server.grpc if "grpc" in name else server.http
    address = [] if name == "memory_growth_test" else ["-u", f"localhost:{port}"]
    if name.endswith("image_client") and name != "ensemble_image_client":
        address += ["-m", "densenet_onnx", "-c", "3", "-s", "INCEPTION", "image.ppm"]
    result = subprocess.run([sys.executable, f"{examples}/{name}.py", *address], text=True, timeout=120,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path})
    ok = result.returncode == 0 and "FAILED" not in result.stdout and WORDS.get(name, "") in result.stdout
    last = (result.stdout.strip().splitlines() or [""])[-1][:100]
    print(f"{name}: {'passes' if ok else f'exit code {result.returncode}: {last}'}")
    if name in PASS and not ok:
        failed.append((name, result.stdout[-2000:]))


with open("image.ppm", "wb") as image:
    image.write(b"P6 64 48 255\n" + os.urandom(64 * 48 * 3))
repository = "repository"
add_simple("simple", "int32")
add_simple("simple_int8", "int8")
add_identity("custom_identity_int32")
add_image("densenet_onnx")
path = os.pathsep.join([os.environ.get("WEFT_CLIENTS", ""), os.environ.get("PYTHONPATH", "")])
failed = []
with Server("--shared-memory", "/", "--server-name", "triton", "--http", "8000", "--grpc", "8001",
            bundle="--repository=repository") as server:
    for name in sorted(f[:-3] for f in os.listdir(examples) if f.endswith(".py") and "model_control" not in f):
        run(name, server)
# These ask for a repository of so many models.
for transport, n in (("http", 7), ("grpc", 8)):
    repository = transport
    for i in range(n):
        add_simple(f"simple{i or ''}", "int32")
    with Server("--server-name", "triton", bundle=f"--repository={repository}") as server:
        for name in (f"simple_{transport}_model_control", f"simple_{transport}_aio_model_control"):
            if os.path.exists(f"{examples}/{name}.py"):
                run(name, server)
assert not failed, failed
