"""Take the picture of the coverage report that the documents show.

    pip install ".[test]" pillow && python scripts/coverage_screenshot.py

The model is Magika's, out of its wheel, on the example NPU; the browser is an installed Chromium.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import shutil
import sys
import tempfile
from pathlib import Path

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.example_npu_schedule import schedules

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "coverage.png"
MODEL = "models/standard_v3_3/model.onnx"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1280, 1215
MOST_BYTES = 150_000


def report() -> str:
    """Partition the model and give the page."""
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        sys.exit("magika is not installed: pip install magika")
    model = byoc.load_model(Path(spec.origin).parent / MODEL, {"bytes": (1, 2048)})
    parts = byoc.partition(model, "example_npu")
    page = parts.coverage.to_html(schedules(byoc.build(parts)))
    # Where the wheel is installed on this machine is nobody's business.
    return page.replace(parts.coverage.model, "magika.onnx")


def take(page: str, scheme: str) -> bytes:
    """Select an op that stayed on the host and photograph what one then sees."""
    from playwright.sync_api import sync_playwright

    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        sys.exit("no Chromium found; on Debian or Ubuntu: apt install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder, "coverage.html")
        file.write_text(page, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        tab = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        tab.goto(file.as_uri())
        tab.wait_for_selector('body[data-rows="ready"]')
        tab.click("#nodes .node.host:has-text('max')")
        tab.mouse.move(0, 0)
        tab.evaluate("scrollTo(0, 0)")
        picture: bytes = tab.screenshot()
        browser.close()
    return picture


def save(picture: bytes, path: Path) -> None:
    """Write it with the 256 most frequent colours: only the edges of letters lose theirs."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(io.BytesIO(picture)) as opened:
        image = opened.convert("RGB")
    frequent = sorted(image.getcolors(image.width * image.height), reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for _, colour in frequent for channel in colour])
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Write the picture named on the command line, by default the documents' one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PICTURE)
    parser.add_argument("--scheme", choices=["light", "dark"], default="light")
    options = parser.parse_args()
    save(take(report(), options.scheme), options.output)
    size = options.output.stat().st_size
    print(f"wrote {options.output} ({size:,} bytes)")
    if size > MOST_BYTES:
        sys.exit(f"more than {MOST_BYTES:,} bytes: make it smaller")


if __name__ == "__main__":
    main()
