from types import ModuleType

import pytest

from pyro_chmm.chain import cuda
from tests.chain.cuda.emulation import Emulator


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    return Emulator(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def backend(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The CUDA backend with its kernels run on the CPU."""
    monkeypatch.setattr(cuda, "_launch", emulator)
    return cuda
