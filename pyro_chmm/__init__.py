"""Weak labels go in, a Pyro model of who is right explains them, calibrated labels with a posterior come out."""

from pyro_chmm._version import __version__

__all__ = ["__version__"]
