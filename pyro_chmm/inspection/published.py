"""What the paper prints: its tables 2 to 5, to stand beside ours. All scores are strict test F1, in percent."""

from __future__ import annotations

#: The language model of each data set in the paper (section 4.1.4).
ENCODERS = {
    "wrench/conll": "bert-base-uncased",
    "wrench/ncbi": "bioBERT",
    "wrench/bc5cdr": "SciBERT",
    "wrench/laptop": "bert-base-uncased",
    "wrench/ontonotes": "bert-base-uncased",
}
_ORDER = ("wrench/conll", "wrench/ncbi", "wrench/bc5cdr", "wrench/laptop", "wrench/ontonotes")


def _row(*values: str) -> dict[str, str]:
    return dict(zip(_ORDER, values, strict=True))


#: Table 2: documents in training, validation and test; entity types; LFs.
STATISTICS = _row(
    "14041 / 3250 / 3453, 4, 16",
    "593 / 100 / 100, 1, 5",
    "500 / 500 / 500, 2, 9",
    "2436 / 609 / 800, 1, 3",
    "115812 / 5000 / 22897, 18, 17",
)

#: Table 3, F1 (precision / recall), by the names of our systems.
SCORES = {
    "best-consensus": _row(
        "86.73 (98.62 / 77.39)", "81.65 (99.85 / 69.06)", "88.42 (99.86 / 79.33)", "77.60 (100.0 / 63.40)", "85.11 (97.35 / 75.61)"
    ),
    "chmm-fe": _row(
        "71.43 (72.89 / 70.02)", "81.86 (90.75 / 74.55)", "86.45 (91.73 / 81.75)", "72.38 (88.13 / 61.41)", "67.99 (65.23 / 71.00)"
    ),
    "majority-vote": _row(
        "60.36 (59.06 / 61.72)", "78.44 (93.04 / 67.79)", "80.73 (83.79 / 77.88)", "73.27 (88.86 / 62.33)", "58.85 (54.17 / 64.40)"
    ),
    "snorkel": _row(
        "62.43 (61.62 / 63.26)", "78.44 (93.04 / 67.79)", "83.50 (91.69 / 76.65)", "73.27 (88.86 / 62.33)", "61.85 (57.44 / 66.99)"
    ),
    "hmm": _row(
        "62.18 (66.42 / 58.45)", "66.80 (96.79 / 51.00)", "71.57 (93.48 / 57.98)", "73.63 (89.30 / 62.63)", "55.67 (57.95 / 53.57)"
    ),
    "chmm": _row(
        "63.22 (61.93 / 64.56)", "78.74 (93.21 / 68.15)", "83.66 (91.76 / 76.87)", "73.26 (88.79 / 62.36)", "64.06 (59.70 / 69.09)"
    ),
    "sparse-chmm": _row(
        "71.53 (73.80 / 69.39)", "82.24 (93.18 / 73.60)", "86.63 (89.56 / 83.88)", "75.90 (91.94 / 64.62)", "64.85 (61.26 / 68.88)"
    ),
}

#: Table 4, F1; "all O" where the paper's model failed to train.
ABLATIONS = {
    "sparse-chmm": _row("71.53", "82.24", "86.63", "75.90", "64.85"),
    "stage 1": _row("69.73", "77.89", "86.15", "73.59", "64.15"),
    "stage 2": _row("70.79", "79.18", "86.04", "74.42", "64.92"),
    "naive-emission": _row("33.02", "77.32", "all O", "71.77", "all O"),
    "no-scaling": _row("58.66", "all O", "86.48", "75.38", "64.69"),
    "no-softmax": _row("62.86", "80.61", "82.56", "73.71", "53.19"),
    "no-dirichlet": _row("64.70", "81.34", "86.05", "73.51", "64.64"),
    "no-stage2": _row("71.18", "81.48", "86.02", "73.11", "63.90"),
    "merged-stages": _row("71.27", "79.81", "85.95", "71.49", "64.22"),
}

#: Table 5, seconds an epoch (epochs to the reported score), on one RTX 2080 Ti.
SECONDS = {
    ("chmm", "1"): _row("25.46 (50)", "5.96 (55)", "8.54 (72)", "2.60 (56)", "729.38 (28)"),
    ("sparse-chmm", "1"): _row("9.64 (30)", "4.66 (42)", "4.02 (87)", "2.06 (25)", "277.60 (3)"),
    ("sparse-chmm", "2"): _row("8.36 (5)", "3.92 (3)", "3.36 (5)", "1.82 (6)", "294.23 (2)"),
    ("sparse-chmm", "3"): _row("8.50 (4)", "4.04 (5)", "3.54 (9)", "1.84 (10)", "250.16 (2)"),
}
