"""``python -m tvm_byoc_kit.cli``."""

from tvm_byoc_kit.cli import app

app()
