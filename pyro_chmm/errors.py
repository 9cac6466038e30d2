"""Errors meant for users: one sentence that says what was found, where, what was expected and what to do.

The command line prints the message of any :class:`PyroCHMMError` and exits with code 2.
"""


class PyroCHMMError(Exception):
    """Base class of every error that a user can cause and mend."""


class DataError(PyroCHMMError):
    """A corpus, a file of weak labels or a data set that cannot be used as given."""


class ConfigError(PyroCHMMError):
    """An option, keyword argument or preset with a value that makes no sense."""


class MissingPackageError(ConfigError):
    """Something that needs a package which is not installed; the message says how to install it."""


class EncoderError(PyroCHMMError):
    """A language model that cannot be loaded or run."""


class ModelFileError(PyroCHMMError):
    """A saved model that is missing, truncated, foreign or of another version."""


class TrainingError(PyroCHMMError):
    """Training that cannot go on: a loss or gradient that is not finite, or a failed verification."""


class RankError(PyroCHMMError):
    """One of several processes ended early, and the others cannot go on without it."""


class ChainError(PyroCHMMError, ValueError):
    """Input that the chain's inference cannot work on: shapes, dtypes, devices or values."""
