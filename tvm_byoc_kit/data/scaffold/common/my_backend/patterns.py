"""What my_backend takes over, and the reasons for what it refuses."""

import tvm_byoc_kit as byoc

CONV, MATMUL = "relax.nn.conv2d", "relax.matmul"
ADD, RELU = "relax.add", "relax.nn.relu"

# Chains of ops, the longer before the shorter: one match becomes one call.
PATTERNS = [
    byoc.Pattern("conv2d_bias_relu", [CONV, ADD, RELU]),
    byoc.Pattern("conv2d_bias", [CONV, ADD]),
    byoc.Pattern("conv2d", [CONV]),
    byoc.Pattern("matmul_bias_relu", [MATMUL, ADD, RELU]),
    byoc.Pattern("matmul_bias", [MATMUL, ADD]),
    byoc.Pattern("matmul", [MATMUL]),
    byoc.Pattern("max_pool2d", ["relax.nn.max_pool2d"]),
    byoc.Pattern("reshape", ["relax.reshape"]),
    byoc.Pattern("add", [ADD]),
    byoc.Pattern("relu", [RELU]),
]

# Attributes that the kernels have no code for, and the value that they need.
NCHW = {"dilation": 1, "out_layout": "NCHW"}
NEEDS = {
    CONV: {**NCHW, "data_layout": "NCHW", "kernel_layout": "OIHW", "groups": 1},
    "relax.nn.max_pool2d": {**NCHW, "layout": "NCHW", "ceil_mode": False},
}


def refusal(call):
    """Why the backend cannot run `call`, a call of an op that a pattern names."""
    for ty in tensor_types([*call.args, call]):
        if ty.dtype != "float32":
            return f"{call.op.name} of {ty.dtype}; my_backend has float32"
        shape = ty.shape
        if shape is None or not all(hasattr(dim, "value") for dim in shape):
            return f"{call.op.name} of an open shape; my_backend needs fixed shapes"
    if call.op.name == MATMUL and any(len(arg.ty.shape) != 2 for arg in call.args):
        return f"{MATMUL} of batches or vectors; my_backend multiplies matrices"
    for name, needed in NEEDS.get(call.op.name, {}).items():
        found = getattr(call.attrs, name)
        values = [found] if isinstance(found, (int, str)) else list(found)
        if any(value != needed for value in values):
            return f"{call.op.name}: {name} is {found}; my_backend has {needed}"
    return None


def tensor_types(values):
    """The types of tensors, in tuples too; other values, such as reshape's shape, have none."""
    types = [ty for value in values for ty in getattr(value.ty, "fields", [value.ty])]
    return [ty for ty in types if hasattr(ty, "shape")]
