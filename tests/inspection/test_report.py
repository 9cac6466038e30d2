"""The report in a real browser, without a network: it renders, explains, filters, and runs nothing of the data."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyro_chmm import MajorityVote, SparseCHMM
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import O
from pyro_chmm.inspection.report import find, render
from tests.inspection.conftest import CHROMIUM

NASTY = (
    "</script><script>document.title='owned'</script>",
    "<script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "&amp;",
    "\u2028",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (looked for /usr/bin/chromium, chromium-browser and google-chrome)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A report in a page that has no network; whatever it complains about or asks for is kept."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        started = time.perf_counter()
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("#documents[data-ready]", timeout=20_000)
        self.seconds = time.perf_counter() - started

    def shown(self) -> list[str]:
        """The names of the documents on the page."""
        titles = self.page.locator("article h3").all_inner_texts()
        return [re.split(r"\s*(least sure token|empty)", title)[0] for title in titles]


def written(model: SparseCHMM, corpus: Corpus, folder: Path, name: str = "report") -> Path:
    file = folder / f"{name}.html"
    file.write_text(render(find(model, corpus), "demo", "test", folder / "history.csv"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def report(fitted: SparseCHMM, test_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(fitted, test_corpus, tmp_path_factory.mktemp("report"))


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    page = Opened(browser, report)
    yield page
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert len(page.requests) == 1
    page.context.close()


def test_it_renders(opened: Opened, fitted: SparseCHMM, test_corpus: Corpus) -> None:
    page = opened.page
    assert page.title() == "demo, split test – pyro-chmm report"
    table = page.locator("#scores tbody").inner_text().split("\n")
    assert [line.split("\t")[0] for line in table] == ["model", "majority vote", "best consensus (oracle)"]
    assert table[0].split("\t")[3] == f"{fitted.score(test_corpus).f1:.2f}"
    assert table[1].split("\t")[3] == f"{MajorityVote().score(test_corpus).f1:.2f}"
    assert page.locator("#lfs table").first.locator("tbody tr").count() == test_corpus.num_lfs
    assert page.locator("#pictures .emissions svg").count() == test_corpus.num_lfs
    assert page.locator("#checks tbody tr").count() >= 12
    ids = list(page.evaluate("Array.from(document.querySelectorAll('[id]'), (e) => e.id)"))
    assert len(ids) == len(set(ids))
    assert opened.shown() == list(test_corpus.document_ids[:10])


def test_a_click_explains_as_python_does(opened: Opened, fitted: SparseCHMM, test_corpus: Corpus) -> None:
    page = opened.page
    third = page.locator("article").nth(2)
    assert third.locator(".word").all_inner_texts() == list(test_corpus.tokens[2])
    third.locator(".word").nth(8).click()
    found = fitted.explain(test_corpus, 2, 8)
    why = third.locator(".why")
    assert f"“Marlow” is {found.label} with posterior {100 * found.marginals.max():.1f} %" in why.inner_text()
    labels = why.locator("thead th").all_inner_texts()[4:]
    rows = {row.locator("th").inner_text(): row.locator("td").all_inner_texts()[3:] for row in why.locator("tbody tr").all()}
    assert list(rows)[: test_corpus.num_lfs] == list(test_corpus.lf_names)
    kept = [found.labels.index(label) for label in labels]
    for vote in found.votes:
        texts = [f"{value:.2f}" for value in vote.log_evidence[kept]] if vote.weight else [""] * len(kept)
        assert close_texts(rows[vote.lf], texts, 0.011)
    assert close_texts(rows["sum: log evidence"], [f"{value:.2f}" for value in found.log_evidence[kept]], 0.03)
    for name, values in {"× left neighbors": found.left, "× right neighbors": found.right, "= posterior": found.marginals}.items():
        assert close_texts(rows[name], [f"{100 * value:.1f} %" for value in values[kept]], 0.31)
    third.locator(".word").nth(8).click()
    assert why.count() == 0


def close_texts(found: list[str], expected: list[str], tolerance: float) -> bool:
    """Numbers as they are shown; the page computes with thousandths of a nat."""
    numbers = [[float(text.split()[0]) if text else 0.0 for text in texts] for texts in (found, expected)]
    return np.allclose(*numbers, rtol=0, atol=tolerance)


def test_filters(opened: Opened, fitted: SparseCHMM, test_corpus: Corpus) -> None:
    page, corpus = opened.page, test_corpus
    labels, vote, posterior = fitted.predict_ids(corpus), MajorityVote().predict_ids(corpus), fitted.predict_proba(corpus)
    slices = [corpus.document_slice(number) for number in range(corpus.num_documents)]
    assert corpus.gold is not None
    overrode = [corpus.document_ids[m] for m, part in enumerate(slices) if (labels[part] != vote[part]).any()]
    wrong = [corpus.document_ids[m] for m, part in enumerate(slices) if (labels[part] != corpus.gold[part]).any()]
    least = [float(p[np.arange(len(p)), labels[part]].min()) for p, part in zip(posterior, slices, strict=True)]
    page.click("[data-filter=overrode]")
    assert opened.shown() == overrode[:10]
    assert page.locator("[data-filter=overrode] span").inner_text() == str(len(overrode))
    page.click("[data-filter=gold]")
    assert opened.shown() == wrong[:10]
    page.click("[data-filter=unsure]")
    notes = page.locator("article .note").all_inner_texts()
    assert notes[0] == f"least sure token {100 * min(least):.1f} %"
    found = [float(note.split()[-2]) for note in notes]
    assert found == sorted(found)
    page.click("[data-filter=all]")
    page.click("text=Next →")
    assert opened.shown() == list(corpus.document_ids[10:20])
    assert page.locator(".place").inner_text() == "11–20 of 60"


def test_texts_of_the_data_stay_texts(browser: Any, fitted: SparseCHMM, test_corpus: Corpus, tmp_path: Path) -> None:
    first = list(test_corpus.tokens[0])
    first[: len(NASTY)] = NASTY
    names = (NASTY[0], *test_corpus.document_ids[1:])
    corpus = replace(test_corpus, tokens=(tuple(first), *test_corpus.tokens[1:]), document_ids=names)
    model = SparseCHMM.__new__(SparseCHMM)
    model.__dict__.update(fitted.__dict__)
    lf_names = (NASTY[2], *fitted.lf_names[1:])
    model.lf_names, corpus = lf_names, replace(corpus, lf_names=lf_names)
    file = written(model, corpus, tmp_path)
    assert file.read_text(encoding="utf-8").count("<script") == 3  # ours
    opened = Opened(browser, file)
    assert opened.page.locator("article").first.locator(".word").all_inner_texts()[:4] == list(NASTY[:4])
    assert opened.shown()[0] == NASTY[0]
    opened.page.locator(".word").first.click()
    assert NASTY[0] in opened.page.locator(".why").inner_text()
    assert NASTY[2] in opened.page.locator("#lfs tbody").first.inner_text()
    assert opened.page.title() == "demo, split test – pyro-chmm report"
    assert opened.page.locator("img").count() == 0
    assert opened.complaints == []
    opened.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_it_fits_a_laptop_and_a_phone(browser: Any, report: Path, width: int, scheme: str) -> None:
    opened = Opened(browser, report, viewport={"width": width, "height": 800}, color_scheme=scheme)
    opened.page.locator(".word").nth(3).click()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) > 600) is (scheme == "light")
    assert opened.complaints == []
    opened.context.close()


def test_without_gold_labels_and_with_empty_documents(browser: Any, fitted: SparseCHMM, demo: Any, tmp_path: Path) -> None:
    types, lf_names = demo.test.label_set.entity_types, demo.test.lf_names
    empty = Corpus.from_spans([[]], [[[]] * len(lf_names)], types, lf_names, document_ids=["void"])
    corpus = Corpus.concatenate([empty, demo.test.without_gold()])
    opened = Opened(browser, written(fitted, corpus, tmp_path))
    assert opened.shown()[:2] == ["void", "test-0"]
    assert opened.page.locator("[data-filter=gold]").count() == 0
    assert "no gold labels" in opened.page.locator("#scores").inner_text()
    assert opened.complaints == []
    opened.context.close()
    only_empty = Opened(browser, written(fitted, empty, tmp_path, "empty"))
    assert only_empty.shown() == ["void"]
    assert only_empty.complaints == []
    only_empty.context.close()


def test_ten_thousand_documents_are_small_and_open_soon(browser: Any, fitted: SparseCHMM, demo: Any, tmp_path: Path) -> None:
    """Words are shuffled and a third of the votes left out anew in every copy: nothing repeats that would help the compression."""
    corpus = Corpus.concatenate([demo.test] * 167).select_documents(range(10_000))
    generator = np.random.default_rng(0)
    words = np.array([word for document in corpus.tokens for word in document], object)
    generator.shuffle(words)
    tokens = tuple(tuple(words[corpus.document_slice(m)].tolist()) for m in range(corpus.num_documents))
    left_out = generator.random(corpus.weak_labels.shape) < 1 / 3
    corpus = replace(corpus, tokens=tokens, weak_labels=np.where(left_out, O, corpus.weak_labels))
    file = written(fitted, corpus, tmp_path)
    assert file.stat().st_size < 20e6
    seconds = []
    for _ in range(3):  # other work on the machine lengthens some of them
        opened = Opened(browser, file)
        seconds.append(opened.seconds)
    print(f"{file.stat().st_size / 1e6:.1f} MB, opened in {min(seconds):.2f} s")
    assert opened.page.locator("[data-filter=all] span").inner_text() == "10,000"
    assert min(seconds) < 3
    assert opened.complaints == []
    opened.context.close()
