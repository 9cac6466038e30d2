"""The pictures of a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pyro_chmm.inspection import plots
from pyro_chmm.inspection.believed import expected_and_true_f1, true_emission
from pyro_chmm.inspection.calibration import calibration
from pyro_chmm.inspection.svg import inline_svg

if TYPE_CHECKING:
    from pyro_chmm.inspection.report import Findings


@dataclass(frozen=True)
class Picture:
    """A picture, what is below it, and the section of the page it belongs to."""

    section: str
    heading: str
    caption: str
    svg: Markup


def pictures(found: Findings, history: Path) -> list[Picture]:
    """All that the data allow: some need gold labels, one a run's ``history.csv``."""
    result = [*_reliabilities(found), *_emissions(found)]
    if found.corpus.gold is not None and found.corpus.num_tokens:
        result += [*_truth(found), *_calibration(found)]
    if history.is_file():
        rows = plots.read_history(history)
        if rows:
            caption = "Objective and validation scores over the epochs of the three stages; each stage keeps its best weights."
            result.append(_picture("training", "Training", caption, lambda ax: plots.plot_training(rows, ax), 2, (4.6, 3.2)))
    config, labels, lfs = found.model.config, len(found.corpus.label_set), found.corpus.num_lfs
    caption = "How a reliability score is scaled, eq. (2), with this model's n and s."
    result.append(_picture("functions", "Function h", caption, lambda ax: plots.plot_scaling(config, lfs, ax), 1, (4.6, 3.4)))
    caption = "How a reliability becomes a row of the emission's base prior, eqs. (3) and (4)."
    result.append(_picture("functions", "Function g", caption, lambda ax: plots.plot_expansion(config, labels, ax), 2, (4.4, 3.4)))
    return result


def _picture(
    section: str, heading: str, caption: str, draw: Callable[[Any], Any], panels: int, size: tuple[float, float], number: int = 0
) -> Picture:
    name = "".join(letter for letter in f"{section}{heading}" if letter.isascii() and letter.isalpha()).lower()
    return Picture(section, heading, caption, inline_svg(f"{name}{number}", f"{heading}. {caption}", draw, panels, size))


def _reliabilities(found: Findings) -> list[Picture]:
    names, labels = found.corpus.lf_names, found.corpus.label_set.names
    size = (2.5, 0.28 * len(names) + 1.0)
    mass = f"{found.intervals.mass:.0%}"
    caption = f"How often each LF says the label where it is true: posterior mean and {mass} interval over documents."

    def draw(ax: Any) -> None:
        plots.plot_reliabilities(found.intervals, names, labels, ax)

    return [_picture("reliabilities", "Reliabilities", caption, draw, len(labels), size)]


def _emissions(found: Findings) -> list[Picture]:
    """One LF each: what the model expects it to say where a label is true and, with gold labels, what it does say."""
    corpus = found.corpus
    truth = None if corpus.gold is None else true_emission(corpus)
    labels, result = corpus.label_set.names, []
    side = max(2.4, 0.42 * len(labels) + 1.0)
    for k, name in enumerate(corpus.lf_names):
        maps = {"model": found.emission[k]} | ({} if truth is None else {"true": truth[k]})
        caption = "Emission: what the LF says (columns) where a label is true (rows), mean over documents."

        def draw(ax: Any, maps: Any = maps) -> None:
            plots.plot_emission(maps, labels, ax)

        result.append(_picture("emissions", name, caption, draw, len(maps), (side, side), k))
    return result


def _truth(found: Findings) -> list[Picture]:
    corpus = found.corpus
    expected, f1 = expected_and_true_f1(corpus, found.marginals)
    caption = "What the model expects of each LF without any gold label, against the strict F1 of the LF's own spans."

    def draw(ax: Any) -> None:
        plots.plot_expected_against_true_f1(expected, f1, corpus.lf_names, corpus.label_set.entity_types, ax)

    return [_picture("quality", "Expected and true F1", caption, draw, 1, (3.6, 3.4))]


def _calibration(found: Findings) -> list[Picture]:
    """Of all tokens, most of which are O beyond doubt, and of those where an LF fires."""
    corpus, result = found.corpus, []
    fires = (corpus.weak_labels > 0).any(axis=1)
    for number, (heading, chosen) in enumerate({"all tokens": fires | True, "where an LF fires": fires}.items()):
        if not chosen.any() or corpus.gold is None:
            continue
        gold = corpus.gold[chosen]
        curves = {
            "model": calibration(found.marginals[chosen], gold),
            "majority vote": calibration(found.vote_shares[chosen], gold),
        }
        caption = "On the dotted line a label of posterior 80 % is right in 80 % of cases. ECE: expected calibration error."

        def draw(ax: Any, curves: Any = curves, heading: str = heading) -> None:
            plots.plot_calibration(curves, f"Calibration, {heading}", ax)

        result.append(_picture("quality", f"Calibration, {heading}", caption, draw, 1, (3.6, 3.4), number))
    return result
