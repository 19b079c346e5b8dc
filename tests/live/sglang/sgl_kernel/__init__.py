"""Stands in for the kernels that need CUDA: all names are there, and fail only when they are called."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, Callable


class Missing:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(f"the kernel {self.name} is not there")

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.name}.{name}")


def names_of(module: str) -> Callable[[str], Missing]:
    return lambda name: getattr(Missing(module), name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below this one."""

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = names_of(spec.name)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.append(Finder())
__version__ = "0.0.0"
__getattr__ = names_of(__name__)
