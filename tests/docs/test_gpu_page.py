"""The results on docs/benchmarks/gpu.md are those of the runs that are kept beside it."""

from __future__ import annotations

from .gpu_script import FOLDER, gpu_script


def test_the_page_shows_the_kept_runs() -> None:
    with gpu_script("page") as (page,):
        text = (FOLDER.parent / "gpu.md").read_text()
        shown = text.partition("<!-- gpu: begin -->")[2].partition("<!-- gpu: end -->")[0]
        assert shown.strip() == page.results()


def test_kernels_are_summed_by_group() -> None:
    with gpu_script("page") as (page,):
        spent = page.by_group({"nvjet_a": 1.0, "attend_kernel": 2.0, "join_kernel": 0.5, "argmax": 0.25})
    assert dict(spent) == {"products": 1.0, "attention": 2.5, "rest": 0.25}
