"""``python -m pyro_chmm.cli`` is ``pyro-chmm``."""

from .main import main

main(prog_name="pyro-chmm")
