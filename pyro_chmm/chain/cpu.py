"""The CPU backend."""

from pyro_chmm.chain.reference import forward_backward

__all__ = ["forward_backward"]
