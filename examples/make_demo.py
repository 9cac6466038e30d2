"""Make the demo corpus that ships with the package: ``python examples/make_demo.py [FOLDER]``.

News-like sentences come out of templates with slots for people (PER), organisations (ORG) and places (LOC),
all invented. Six labeling functions read them as people would write such functions, and go wrong as those do,
in ways that repeat:

* ``gazetteer`` knows four names in five by heart, and sees a place inside "Marlow Bank" where it does not
  know the bank;
* ``capitals`` takes two capitalised words or more for an organisation, and one for a place;
* ``subject`` takes the capitalised words before "said", "hired" and the like for an organisation: wrong for
  people, where it and ``capitals`` together outvote the gazetteer, which is right;
* ``preposition`` takes the capitalised words after "in", "near" or "at" for a place;
* ``title`` knows people by their title, counts "Dr" and "Prof" as part of the name (gold labels do not), and
  abstains on a sentence without a title;
* ``legacy`` looks for markup that no sentence has.

So a vote goes wrong where a model can learn who is right about what. The same seed gives the same files, byte
for byte.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import jsonl, write_lines
from pyro_chmm.data.labels import Span

SEED = 20
SIZES = {"train": 400, "valid": 100, "test": 150}
ENTITY_TYPES = ("PER", "ORG", "LOC")

GAZETTEER_COVERAGE = 0.8
"""Share of all names that the gazetteer knows."""

# an underscore is a space inside a name
FIRST_NAMES = """
Ada Boris Clara Dmitri Elena Farid Greta Hana Ivo Jonas Katya Lars Mina Nils Olga Pavel Rosa Sami Tessa Uwe
"""
SURNAMES = """
Ashby Brandt Corrigan Dahl Eriksen Falk Garrow Halden Ibsen Jansson Keller Lindqvist Marlow Norrby Okafor
Petrov Quist Rask Sandoval Thorne
"""
PLACES = """
Ashby Halden Marlow Norrby Port_Elling Skarnes Velden Lower_Tarn Mirebank Oststrand Cape_Orrin Duneholm Fallow
Greyford Saint_Odo Tarnby Westmere Yarrow Kirkvale Old_Brinna
"""
SUBJECTS = "Marlow Halden Northern Ashby Westmere Velden Royal Greyford United Tarnby"
KINDS = "Bank Works Institute Press Council Trust Rail Foundry Water_Board Film_Club"
TEMPLATES = """
{PER} said the ferry would run again by spring .
{PER} hired two carpenters from {LOC} last week .
{PER} joined {ORG} after ten years at sea .
{PER} opened a small bakery near {LOC} .
{ORG} said its winter timetable was ready .
{ORG} hired {PER} to mend the organ .
{ORG} opened an office in {LOC} .
{ORG} announced that Mr {PER} would retire .
{ORG} announced a loss for the third year .
{ORG} left {LOC} when the harbour silted up .
Dr {PER} said the results were early but clear .
Dr {PER} announced a cure for rust .
Ms {PER} hired a lawyer from {ORG} .
Ms {PER} opened the new hall in {LOC} .
Mr {PER} joined the choir of {LOC} in May .
Mr {PER} walked from {LOC} to {LOC} in a day .
Prof {PER} left {ORG} to teach in {LOC} .
The letter from Prof {PER} reached {ORG} too late .
A reporter asked Ms {PER} about the flood in {LOC} .
The committee thanked Dr {PER} and {PER} for the map .
Workers at {ORG} voted to go back on Monday .
A talk by Mr {PER} at {ORG} drew a full hall .
The road near {LOC} was closed by snow .
Two trains from {LOC} were late again .
Fishermen in {LOC} sold their catch to {ORG} .
Nobody in {LOC} had seen the comet .
The bridge at {LOC} was painted by {PER} .
Prices rose in {LOC} and fell in {LOC} .
The museum in {LOC} bought a painting of {PER} .
Shares of {ORG} fell after {PER} resigned .
The old contract between {ORG} and {ORG} ran out .
It rained for most of the week .
The choir sang two songs and went home .
On Tuesday the mill stood still .
"""

NAME_TITLES = ("Dr", "Prof")
TITLES = (*NAME_TITLES, "Ms", "Mr")
ACTIONS = ("said", "hired", "announced", "opened", "joined", "left")
PREPOSITIONS = ("in", "near", "at")
SENTENCE_STARTS = ("The", "A", "Two", "On", "Nobody", "It", "Workers", "Fishermen", "Shares", "Prices")

Sentence = tuple[list[str], list[Span]]
LabelingFunction = Callable[[list[str]], list[Span] | None]


def main(folder: Path) -> None:
    """Write the three splits and ``meta.json`` into a folder."""
    choose = random.Random(SEED)
    names: dict[str, Sequence[str]] = {"PER": people(), "ORG": organisations(), "LOC": PLACES.split()}
    templates = TEMPLATES.strip().splitlines()
    functions = labeling_functions(choose, names)
    for split, size in SIZES.items():
        sentences = [fill(pick(choose, templates), choose, names) for _ in range(size)]
        tokens = [words for words, _ in sentences]
        corpus = Corpus.from_spans(
            tokens,
            [[function(words) for function in functions.values()] for words in tokens],
            ENTITY_TYPES,
            tuple(functions),
            gold_spans=[spans for _, spans in sentences],
            document_ids=[f"{split}-{number}" for number in range(size)],
        )
        jsonl.write(folder / f"{split}.jsonl", corpus, declare=False)
    meta = {"lf": list(functions), "lf_rec": list(functions), "entity_types": list(ENTITY_TYPES)}
    write_lines(folder / "meta.json", [json.dumps(meta, indent=2)])


def pick(choose: random.Random, items: Sequence[str]) -> str:
    """One of the items; by ``random()`` alone, which no version of Python changes."""
    return items[int(choose.random() * len(items))]


def people() -> list[str]:
    """First name and surname; every fifth has a surname alone."""
    full = [f"{first} {last}" for first in FIRST_NAMES.split() for last in SURNAMES.split()]
    return full + SURNAMES.split() * (len(FIRST_NAMES.split()) // 5)


def organisations() -> list[str]:
    """Such as "Marlow Bank" and "Royal Water Board"."""
    return [f"{subject} {kind}" for subject in SUBJECTS.split() for kind in KINDS.split()]


def fill(template: str, choose: random.Random, names: dict[str, Sequence[str]]) -> Sentence:
    """The words of a template with names in its slots, and where the names are."""
    words: list[str] = []
    spans: list[Span] = []
    for part in template.split():
        kind = part.strip("{}")
        new = pick(choose, names[kind]).replace("_", " ").split() if part.startswith("{") else [part]
        if part.startswith("{"):
            spans.append((len(words), len(words) + len(new), kind))
        words += new
    return words, spans


def labeling_functions(choose: random.Random, names: dict[str, Sequence[str]]) -> dict[str, LabelingFunction]:
    """The six functions by name; the gazetteer's gaps are drawn here."""
    known = {
        tuple(name.replace("_", " ").split()): kind
        for kind, items in names.items()
        for name in dict.fromkeys(items)
        if choose.random() < GAZETTEER_COVERAGE
    }
    return {
        "gazetteer": lambda words: gazetteer(words, known),
        "capitals": capitals,
        "subject": subject,
        "preposition": preposition,
        "title": title,
        "legacy": legacy,
    }


def gazetteer(words: list[str], known: dict[tuple[str, ...], str]) -> list[Span]:
    """The longest known name at each place, from left to right."""
    spans: list[Span] = []
    start = 0
    while start < len(words):
        for end in range(min(start + 3, len(words)), start, -1):
            kind = known.get(tuple(words[start:end]))
            if kind is not None:
                spans.append((start, end, kind))
                break
        start = spans[-1][1] if spans and spans[-1][1] > start else start + 1
    return spans


def capitalised(words: list[str], start: int) -> int:
    """Where the capitalised words that begin at a place end; the place itself if there are none."""
    end = start
    while end < len(words) and words[end][0].isupper():
        end += 1
    return end


def capitals(words: list[str]) -> list[Span]:
    """Capitalised words: two or more an organisation, one a place; words that start sentences left out."""
    spans: list[Span] = []
    start = 1 if words[0] in SENTENCE_STARTS or words[0] in TITLES else 0
    while start < len(words):
        end = capitalised(words, start)
        if end > start and words[start] not in TITLES:
            spans.append((start, end, "ORG" if end > start + 1 else "LOC"))
        start = max(end, start + 1)
    return spans


def subject(words: list[str]) -> list[Span]:
    """The capitalised words before a verb of action, as an organisation."""
    spans: list[Span] = []
    for place, word in enumerate(words):
        start = place
        while start > 0 and words[start - 1][0].isupper() and words[start - 1] not in TITLES:
            start -= 1
        if word in ACTIONS and start < place:
            spans.append((start, place, "ORG"))
    return spans


def preposition(words: list[str]) -> list[Span]:
    """The capitalised words after a preposition, as a place."""
    starts = [place + 1 for place, word in enumerate(words) if word in PREPOSITIONS]
    ends = [capitalised(words, start) for start in starts]
    return [(start, end, "LOC") for start, end in zip(starts, ends, strict=True) if end > start]


def title(words: list[str]) -> list[Span] | None:
    """The capitalised words after a title, as a person; no opinion on a sentence without a title."""
    spans: list[Span] = []
    for place, word in enumerate(words):
        if word in TITLES:
            start = place if word in NAME_TITLES else place + 1
            spans.append((start, capitalised(words, place), "PER"))
    return spans or None


def legacy(words: list[str]) -> list[Span]:
    """Words in a markup that went out of use, as people: it never fires."""
    return [(place, place + 1, "PER") for place, word in enumerate(words) if word.startswith("<name>")]


if __name__ == "__main__":
    shipped = Path(__file__).resolve().parent.parent / "pyro_chmm" / "data" / "demo"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else shipped)
